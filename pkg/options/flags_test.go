package options

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// releases holds every flag of kubernetes-csi/node-driver-registrar v1.0.0-rc1
// to v2.17.0 and of driver-registrar 0.x, with a value it took, as found in
// the tags. Boolean flags have none.
var releases = []struct{ name, value string }{
	{"csi-address", "/csi/csi.sock"},
	{"kubelet-registration-path", "/var/lib/kubelet/plugins/x/csi.sock"},
	{"version", ""},
	{"connection-timeout", "24h"},
	{"kubeconfig", "/etc/kubeconfig"},
	{"plugin-registration-path", "/registration"},
	{"health-port", "9809"},
	{"http-endpoint", "localhost:29617"},
	{"timeout", "5s"},
	{"mode", "node-register"},
	{"enable-pprof", ""},
	{"automaxprocs", ""},
	{"v", "5"},
	{"vmodule", "main=3"},
	{"logtostderr", ""},
	{"alsologtostderr", ""},
	{"stderrthreshold", "INFO"},
	{"log_backtrace_at", "main.go:5"},
	{"log_dir", "/tmp"},
	{"log_file", "/tmp/log"},
	{"skip_headers", ""},
	{"log_file_max_size", "100"},
	{"skip_log_headers", ""},
	{"add_dir_header", ""},
	{"one_output", ""},
	{"logging-format", "json"},
	{"log-flush-frequency", "1s"},
	{"log-json-split-stream", ""},
	{"log-json-info-buffer-size", "0"},
	{"log-text-split-stream", ""},
	{"log-text-info-buffer-size", "0"},
	{"driver-requires-attachment", ""},
	{"pod-info-mount-version", "v1"},
}

// TestEveryFlagOfEveryRelease reads each in every way the flag package allows,
// and sees that what follows is read too.
func TestEveryFlagOfEveryRelease(t *testing.T) {
	for _, f := range releases {
		for _, dashes := range []string{"-", "--"} {
			var forms [][]string
			if f.value == "" {
				forms = [][]string{{dashes + f.name}, {dashes + f.name + "=true"}, {dashes + f.name + "=false"}}
			} else {
				forms = [][]string{{dashes + f.name + "=" + f.value}, {dashes + f.name, f.value}}
			}
			for _, args := range forms {
				g := newGiven()
				if err := g.fs.Parse(append(args, "--driver-wait=7s")); err != nil {
					t.Errorf("%q: %v", args, err)
				} else if g.driverWait == 0 || g.fs.NArg() != 0 {
					t.Errorf("%q swallows what follows, or ends the reading", args)
				}
			}
		}
	}
}

// TestIgnored: one warning names them all, no value of theirs is wrong, and
// they do not show up among the flags that matter.
func TestIgnored(t *testing.T) {
	o := parsed(t, kubeletFlag, "--logtostderr=what", "--connection-timeout=never", "--driver-requires-attachment",
		`--pod-info-mount-version="v1"`, "--log_file_max_size", "much", "--automaxprocs")
	want := []string{"accepted and ignored, since they no longer mean anything: --automaxprocs, --connection-timeout, " +
		"--driver-requires-attachment, --log_file_max_size, --logtostderr, --pod-info-mount-version"}
	if !slices.Equal(o.Warnings, want) {
		t.Errorf("got  %q\nwant %q", o.Warnings, want)
	}
	if !slices.Equal(o.Changed, []string{kubeletFlag}) {
		t.Errorf("changed: %q", o.Changed)
	}
	for _, f := range ignoredFlags() {
		if !slices.ContainsFunc(releases, func(r struct{ name, value string }) bool { return r.name == f.name && (r.value == "") == f.isBool }) {
			t.Errorf("--%s is ignored, but no release had it, or its kind differs", f.name)
		}
	}
}

func TestNearest(t *testing.T) {
	for _, test := range []struct{ given, want string }{
		{"--kubelet-registration-pth=/x", "unknown flag --kubelet-registration-pth: is --kubelet-registration-path meant?"},
		{"--kubelet_registration_path=/x", "unknown flag --kubelet_registration_path: is --kubelet-registration-path meant?"},
		{"--CSI-address=/x", "unknown flag --CSI-address: is --csi-address meant?"},
		{"--csi-adress=/x", "unknown flag --csi-adress: is --csi-address meant?"},
		{"--kubelet-registration", "unknown flag --kubelet-registration: is --kubelet-registration-path meant?"},
		{"--registration-path", "unknown flag --registration-path: is --plugin-registration-path meant?"},
		{"--endpoint=:80", "unknown flag --endpoint: is --http-endpoint meant?"},
		{"--pprof", "unknown flag --pprof: is --enable-pprof meant?"},
		{"--helth-prot", "unknown flag --helth-prot: is --health-port meant?"},
		{"--vesrion", "unknown flag --vesrion: is --version meant?"},
		{"--logtosdterr", "unknown flag --logtosdterr: is --logtostderr meant? That one no longer has an effect; leave it out"},
		{"--log-dir", "unknown flag --log-dir: is --log_dir meant? That one no longer has an effect; leave it out"},
		{"--port=80", "unknown flag --port: is --health-port meant?"},
		{"--vrsoin", "unknown flag --vrsoin: is --version meant?"},
		{"--vrsin", "unknown flag --vrsin (see --help)"},
		{"--leader-election", "unknown flag --leader-election (see --help)"},
		{"--x", "unknown flag --x (see --help)"},
	} {
		_, out := parse([]string{test.given}, io.Discard, onLinux)
		if out.Code != 2 || out.Reason != test.want {
			t.Errorf("%s: exit %d, %q\nwant exit 2, %q", test.given, out.Code, out.Reason, test.want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "axc", 1}, {"abc", "acb", 1}, {"abc", "ab", 1},
		{"ab", "abc", 1}, {"kitten", "sitting", 3}, {"abcd", "badc", 2},
	} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("distance(%q, %q) = %d, want %d", test.a, test.b, got, test.want)
		}
	}
}

func TestStrayWord(t *testing.T) {
	for _, test := range []struct {
		args    string // after kubeletFlag
		pprof   bool
		warning string // of the stray word; empty: none
	}{
		{"--enable-pprof true --http-endpoint=:80 -v 5 --logtostderr", true,
			`"true" is not a flag, and ended the reading of flags; ignored: --http-endpoint=:80 -v --logtostderr` +
				` (a boolean flag takes its value with an equal sign: --enable-pprof=true)`},
		{"--http-endpoint=:80 --enable-pprof", true, ""},
		{"word", false, `"word" is not a flag, and ended the reading of flags`},
		{"--mode --mode word", false, `"word" is not a flag, and ended the reading of flags`},
		{"--mode version word --v=3", false, `"word" is not a flag, and ended the reading of flags; ignored: --v=3`},
		{"--health-port 80 - --enable-pprof", false, `"-" is not a flag, and ended the reading of flags; ignored: --enable-pprof`},
		{"-- --enable-pprof", false, `"--enable-pprof" is not a flag, and ended the reading of flags; ignored: --enable-pprof`},
		{"--", false, ""},
	} {
		t.Run(test.args, func(t *testing.T) {
			o := parsed(t, append([]string{kubeletFlag}, strings.Fields(test.args)...)...)
			got := ""
			if len(o.Warnings) > 0 && strings.Contains(o.Warnings[0], "ended the reading") {
				got = o.Warnings[0]
			}
			if got != test.warning {
				t.Errorf("got  %s\nwant %s", got, test.warning)
			}
			if o.EnablePprof != test.pprof {
				t.Errorf("pprof is %t", o.EnablePprof)
			}
		})
	}
	o, _ := parse([]string{"--enable-pprof", "true"}, io.Discard, onLinux)
	if got := strings.Join(o.Warnings, "\n"); !strings.Contains(got, "--enable-pprof=true") {
		t.Errorf("no hint at the equal sign in %q", got)
	}
	for _, args := range []string{"true --kubelet-registration-path=/x", "true -kubelet-registration-path /x"} {
		_, out := parse(strings.Fields(args), io.Discard, onLinux)
		if want := `given after "true"`; out.Code != 1 || !strings.Contains(out.Reason, want) {
			t.Errorf("%s: %+v, want exit 1 with %q", args, out, want)
		}
	}
}

// TestArgumentsFromTheField reads argument lists of published manifests
// (registrar containers and their exec probes, v0.4 to v2.17), which one
// release or another accepted.
func TestArgumentsFromTheField(t *testing.T) {
	data, err := os.ReadFile("testdata/arguments.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	warned := map[string]string{ // everything else goes without a warning
		"aws-efs (2018, driver-registrar 0.4)": "ignored, since they no longer mean anything: --driver-requires-attachment, --pod-info-mount-version",
		"aws-fsx (2018, driver-registrar 0.4)": "ignored, since they no longer mean anything: --driver-requires-attachment, --pod-info-mount-version",
		"trident v1.0.2":                       "ignored, since they no longer mean anything: --connection-timeout",
		"vsphere v2.8.0":                       "is inside plugins_registry",
	}
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	rows := 0
	for ; lines.Scan(); rows++ {
		var row struct {
			Driver, OS, Tag string
			Args            []string
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		p := onLinux
		if row.OS == "windows" {
			p = onWindows
		}
		o, out := parse(row.Args, io.Discard, p)
		isProbe := slices.Contains(row.Args, "--mode="+ModeProbe)
		if out.Exit != isProbe || out.Code != 0 {
			t.Errorf("%s %s: %+v for %q", row.Driver, row.Tag, out, row.Args)
			continue
		}
		if isProbe {
			continue
		}
		if p.windows && (!isDrive(o.CSIAddress) || !isDrive(o.PluginRegistrationPath)) {
			t.Errorf("%s %s: not absolute on Windows: %+v", row.Driver, row.Tag, o)
		}
		if !p.rooted(o.CSIAddress) || !p.rooted(o.KubeletRegistrationPath) || strings.Contains(o.CSIAddress, "unix:") {
			t.Errorf("%s %s: %+v", row.Driver, row.Tag, o)
		}
		for _, w := range o.Warnings {
			expected := false
			for who, what := range warned {
				if strings.HasPrefix(row.Driver+" "+row.Tag, who) && strings.Contains(w, what) {
					seen[who], expected = true, true
				}
			}
			if !expected {
				t.Errorf("%s %s: unexpected warning %q for %q", row.Driver, row.Tag, w, row.Args)
			}
		}
	}
	if rows < 160 || len(seen) != len(warned) {
		t.Errorf("%d rows; warnings seen of %v", rows, seen)
	}
}
