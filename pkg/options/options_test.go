package options

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const kubeletFlag = "--kubelet-registration-path=/var/lib/kubelet/plugins/x.example.com/csi.sock"

var (
	onLinux   = platform{cwd: "/"}
	onWindows = platform{windows: true, cwd: `C:\`}
)

// parsed parses what must be accepted for a run.
func parsed(t *testing.T, args ...string) Options {
	t.Helper()
	o, out := parse(args, io.Discard, onLinux)
	if out != (Outcome{}) {
		t.Fatalf("parse %q: %+v, want a run", args, out)
	}
	return o
}

func TestDefaults(t *testing.T) {
	o := parsed(t, kubeletFlag)
	o.logging = nil
	want := Options{
		CSIAddress:              "/run/csi/socket",
		KubeletRegistrationPath: "/var/lib/kubelet/plugins/x.example.com/csi.sock",
		PluginRegistrationPath:  "/registration",
		Timeout:                 time.Second,
		Changed:                 []string{kubeletFlag},
	}
	if !equal(o, want) {
		t.Errorf("got  %+v\nwant %+v", o, want)
	}
}

func equal(a, b Options) bool {
	sameLists := slices.Equal(a.Warnings, b.Warnings) && slices.Equal(a.Changed, b.Changed)
	a.Warnings, a.Changed, b.Warnings, b.Changed = nil, nil, nil, nil
	return sameLists && a.CSIAddress == b.CSIAddress && a.KubeletRegistrationPath == b.KubeletRegistrationPath &&
		a.PluginRegistrationPath == b.PluginRegistrationPath && a.HTTPEndpoint == b.HTTPEndpoint && a.Timeout == b.Timeout &&
		a.DriverWait == b.DriverWait && a.EnablePprof == b.EnablePprof && a.Mode == b.Mode && a.Version == b.Version
}

func TestValues(t *testing.T) {
	o := parsed(t, kubeletFlag, "--csi-address=/csi/csi.sock", "--plugin-registration-path=/reg/", "--http-endpoint=:9809",
		"--timeout=3s", "--driver-wait", "2m", "--enable-pprof", "--mode=registration", "-v=5")
	o.logging = nil
	want := Options{
		CSIAddress:              "/csi/csi.sock",
		KubeletRegistrationPath: "/var/lib/kubelet/plugins/x.example.com/csi.sock",
		PluginRegistrationPath:  "/reg",
		HTTPEndpoint:            ":9809",
		Timeout:                 3 * time.Second,
		DriverWait:              2 * time.Minute,
		EnablePprof:             true,
		Mode:                    "registration",
		Changed: []string{"--csi-address=/csi/csi.sock", "--driver-wait=2m0s", "--enable-pprof=true", "--http-endpoint=:9809",
			kubeletFlag, "--mode=registration", "--plugin-registration-path=/reg/", "--timeout=3s", "--v=5"},
	}
	if !equal(o, want) {
		t.Errorf("got  %+v\nwant %+v", o, want)
	}
	if got := o.Changed; slices.Contains(parsed(t, kubeletFlag, "--timeout=1s").Changed, "--timeout=1s") {
		t.Errorf("a flag given its default counts as changed: %q", got)
	}
}

// TestOrderOfExits gives several reasons to exit at once; the incumbent's
// first one has to win, wherever its flag stands.
func TestOrderOfExits(t *testing.T) {
	const (
		unknown  = "--no-such-thing"
		badLog   = "--logging-format=xml"
		version  = "--version"
		probe    = "--mode=kubelet-registration-probe"
		port     = "--health-port=9809"
		endpoint = "--http-endpoint=:9809"
	)
	for _, test := range []struct {
		args   string
		code   int
		reason string // part of it; empty: none at all
	}{
		{unknown + " " + version + " " + badLog, 2, "unknown flag --no-such-thing"},
		{version + " " + badLog + " " + unknown, 2, "unknown flag --no-such-thing"},
		{"--timeout=soon " + version, 2, `invalid value "soon" for flag -timeout`},
		{"--enable-pprof=maybe", 2, `invalid boolean value "maybe" for -enable-pprof`},
		{"--health-port", 2, "flag needs an argument: -health-port"},
		{"---v=5", 2, "bad flag syntax: ---v=5"},
		{"-v=-1", 2, "-v"},
		{version + " " + badLog, 1, "Unsupported log format"},
		{"--log-flush-frequency=0 " + version, 1, "Must be greater than zero"},
		{"--log-json-split-stream", 1, "LoggingAlphaOptions is disabled"},
		{"--log-text-info-buffer-size=1M", 1, "LoggingAlphaOptions is disabled"},
		{"--logging-format=json --vmodule=a=1", 1, "Only supported for text log format"},
		{version, 0, ""},
		{version + " " + probe + " " + port + " " + endpoint, 0, ""},
		{"", 1, "--kubelet-registration-path is required"},
		{"--kubelet-registration-path=", 1, "--kubelet-registration-path is required"},
		{probe, 1, "--kubelet-registration-path is required"},
		{probe + " " + port + " " + endpoint + " --timeout=0 --csi-address= " + kubeletFlag, 0, ""},
		{port + " " + endpoint + " --timeout=0 " + kubeletFlag, 1, "--health-port=9809 and --http-endpoint=:9809 exclude each other"},
		{"--timeout=0 " + kubeletFlag, 1, "--timeout=0s is not greater than zero"},
		{"--health-port=1 " + endpoint + " " + kubeletFlag, 1, "exclude each other"},
		{"--timeout=-1s " + kubeletFlag, 1, "--timeout=-1s is not greater than zero"},
		{"--handover=never " + kubeletFlag, 1, "--handover=never is neither auto nor announce"},
		{"--on-driver-restart=maybe " + kubeletFlag, 1, "--on-driver-restart=maybe is neither compare, always nor never"},
		{"--compat=loose " + kubeletFlag, 1, "--compat=loose is neither off nor strict"},
		{"--driver-wait=-1s " + kubeletFlag, 1, "--driver-wait=-1s is negative"},
		{"--csi-address= " + kubeletFlag, 1, "--csi-address= is an empty path"},
		{"--plugin-registration-path= " + kubeletFlag, 1, "--plugin-registration-path is empty"},
	} {
		t.Run(test.args, func(t *testing.T) {
			_, out := parse(strings.Fields(test.args), io.Discard, onLinux)
			if !out.Exit || out.Code != test.code {
				t.Errorf("got %+v, want exit %d", out, test.code)
			}
			if !strings.Contains(out.Reason, test.reason) || (test.reason == "") != (out.Reason == "") {
				t.Errorf("reason %q, want %q", out.Reason, test.reason)
			}
			if isUsage := test.code == 2; out.Told != isUsage {
				t.Errorf("told is %t, want %t", out.Told, isUsage)
			}
			if isProbe := strings.Contains(test.args, probe); out.Probe != isProbe {
				t.Errorf("probe is %t, want %t", out.Probe, isProbe)
			}
		})
	}
}

// TestSeveralProblems are said at once, lest each costs a restart.
func TestSeveralProblems(t *testing.T) {
	_, out := parse([]string{kubeletFlag, "--timeout=0", "--driver-wait=-1s", "--csi-address="}, io.Discard, onLinux)
	for _, want := range []string{"--timeout", "--driver-wait", "--csi-address"} {
		if !strings.Contains(out.Reason, want) {
			t.Errorf("reason %q does not mention %s", out.Reason, want)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, arg := range []string{"-h", "--help", "-help"} {
		var stderr strings.Builder
		_, out := parse([]string{"--timeout=7s", arg, "--no-such-thing"}, &stderr, onLinux)
		if out != (Outcome{Exit: true, Told: true}) {
			t.Errorf("%s: %+v, want exit 0 after help", arg, out)
		}
		for _, want := range []string{"Usage of csi-node-driver-registrar:\n", "-kubelet-registration-path path\n",
			"(default 1s)", "without effect: --add_dir_header, --alsologtostderr"} {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: no %q in\n%s", arg, want, stderr.String())
			}
		}
		for _, unwanted := range []string{"panic", "7s", "\n  -log_dir", "LoggingAlphaOptions"} {
			if strings.Contains(stderr.String(), unwanted) {
				t.Errorf("%s: %q in\n%s", arg, unwanted, stderr.String())
			}
		}
	}
	if _, out := parse([]string{"--no-such-thing", "-h"}, io.Discard, onLinux); out.Code != 2 {
		t.Errorf("an unknown flag before -h: %+v, want exit 2", out)
	}
}

func TestUsageErrorIsTheLastLine(t *testing.T) {
	var stderr strings.Builder
	_, out := parse([]string{"--kubelet-registration-pth=/x"}, &stderr, onLinux)
	if !strings.HasPrefix(stderr.String(), "Usage of csi-node-driver-registrar:\n") || !strings.HasSuffix(stderr.String(), "\n\n"+out.Reason+"\n") {
		t.Errorf("want usage, an empty line and the reason; got\n%s", stderr.String())
	}
}

func TestHealthPort(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--health-port=9809", ":9809"},
		{"-health-port 9809", ":9809"}, // spiffe-csi's hardened chart
		{"--health-port=1", ":1"},
		{"--health-port=0", ""},
		{"--health-port=-1", ""},
		{"--health-port=0 --http-endpoint=:80", ":80"},
		{"--health-port=-1 --http-endpoint=:80", ":80"},
	} {
		if got := parsed(t, append(strings.Fields(test.args), kubeletFlag)...).HTTPEndpoint; got != test.want {
			t.Errorf("%s: endpoint %q, want %q", test.args, got, test.want)
		}
	}
}

func TestParseLeavesTheProcessAlone(t *testing.T) {
	count := func() (n int) {
		flag.CommandLine.VisitAll(func(*flag.Flag) { n++ })
		return n
	}
	before := count()
	o, out := Parse([]string{kubeletFlag, "--v=5", "--csi-address=csi.sock"}, os.Stderr)
	if out.Exit {
		t.Fatalf("%+v", out)
	}
	if !filepath.IsAbs(o.CSIAddress) || !filepath.IsAbs(o.PluginRegistrationPath) {
		t.Errorf("not absolute: %q, %q", o.CSIAddress, o.PluginRegistrationPath)
	}
	if after := count(); after != before {
		t.Errorf("flag.CommandLine has %d flags, had %d", after, before)
	}
}

func TestOddities(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--mode=registration", ""},
		{"--mode=node-register", ""},
		{"--mode=kubelet-registration-prob", "this is a normal run"},
		{"--enable-pprof", "no effect without --http-endpoint"},
		{"--enable-pprof --http-endpoint=:80", ""},
		{"--enable-pprof --health-port=80", ""},
		{"--http-endpoint=localhost:29617", ""},
		{"--http-endpoint=:http", ""},
		{"--http-endpoint=[::1]:80", ""},
		{"--http-endpoint=8080", "write it as :8080"},
		{"--http-endpoint=:65535", ""},
		{"--http-endpoint=:0", ""},
		{"--timeout=1ns", ""},
		{"--http-endpoint=:65536", "not between 0 and 65535"},
		{"--health-port=99999", "not between 0 and 65535"},
	} {
		got := strings.Join(parsed(t, append(strings.Fields(test.args), kubeletFlag)...).Warnings, "\n")
		if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: warnings %q, want %q", test.args, got, test.want)
		}
	}
}

// strict is one word for everything that the incumbent does not do.
func TestCompatStrictSwitchesOffTheRest(t *testing.T) {
	for args, want := range map[string]Options{
		"":                                     {KeepEndpoint: true, Handover: true},
		"--keep-endpoint=false":                {Handover: true},
		"--handover=announce":                  {KeepEndpoint: true},
		"--compat=off":                         {KeepEndpoint: true, Handover: true},
		"--compat=strict":                      {Strict: true},
		"--keep-endpoint=true --compat=strict": {Strict: true},
	} {
		o := parsed(t, append(strings.Fields(args), kubeletFlag)...)
		if o.KeepEndpoint != want.KeepEndpoint || o.Handover != want.Handover || o.Strict != want.Strict {
			t.Errorf("%s: KeepEndpoint %v, Handover %v, Strict %v", args, o.KeepEndpoint, o.Handover, o.Strict)
		}
	}
}
