package options

import (
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	logsapi "k8s.io/component-base/logs/api/v1"
)

const (
	programName = "csi-node-driver-registrar"

	defaultCSIAddress = "/run/csi/socket"
	defaultPluginPath = "/registration"
	defaultTimeout    = time.Second
)

// given is the flag set together with the variables it fills.
type given struct {
	fs      *flag.FlagSet
	logging *logsapi.LoggingConfiguration

	csiAddress, kubeletPath, pluginPath string
	httpEndpoint, mode                  string
	healthPort                          int
	timeout, driverWait                 time.Duration
	pprof, version, keepEndpoint        bool
	compat, onRestart, handover         string
}

// newGiven defines every flag: what has a meaning here, the logging flags of
// component-base, and what is accepted only.
func newGiven() *given {
	g := &given{fs: flag.NewFlagSet(programName, flag.ContinueOnError), logging: logsapi.NewLoggingConfiguration()}
	fs := g.fs
	fs.SetOutput(io.Discard) // parse decides what is written, and in which order
	fs.Usage = func() {}

	fs.StringVar(&g.csiAddress, "csi-address", defaultCSIAddress,
		"`path` of the CSI driver's socket, seen from here; also as unix:/path, unix:///path, or unix://C:\\path on Windows")
	fs.StringVar(&g.kubeletPath, "kubelet-registration-path", "",
		"`path` of the CSI driver's socket, seen by kubelet on the host (required)")
	fs.StringVar(&g.pluginPath, "plugin-registration-path", defaultPluginPath,
		"`directory`, seen from here, that is kubelet's plugins_registry; the registration socket is made in it")
	fs.StringVar(&g.httpEndpoint, "http-endpoint", "",
		"TCP `address` for /healthz and, with --enable-pprof, profiles, such as :8080; empty: no HTTP server")
	fs.IntVar(&g.healthPort, "health-port", 0,
		"deprecated, use --http-endpoint: TCP `port` of the HTTP server on all addresses; 0: none")
	fs.DurationVar(&g.timeout, "timeout", defaultTimeout,
		"deadline of one call to the CSI driver; the call is repeated until the driver answers")
	fs.DurationVar(&g.driverWait, "driver-wait", 0,
		"exit with 1 if the CSI driver has not answered after this long; 0: wait without limit")
	fs.BoolVar(&g.pprof, "enable-pprof", false, "serve net/http/pprof at --http-endpoint")
	fs.StringVar(&g.mode, "mode", "",
		"deprecated: "+ModeProbe+" exits with 0 at once, anything else is a normal run")
	fs.BoolVar(&g.keepEndpoint, "keep-endpoint", true,
		"announce a symlink beside the CSI driver's socket, which leads to a driver that answers, where that is possible")
	fs.StringVar(&g.compat, "compat", CompatOff,
		CompatStrict+": do nothing that the incumbent does not do, --keep-endpoint included; "+CompatOff+": do it")
	fs.StringVar(&g.onRestart, "on-driver-restart", restartCompare,
		"when the CSI driver restarts alone, announce it again: "+restartCompare+": if its node info has changed; "+restartAlways+"; or "+restartNever)
	fs.StringVar(&g.handover, "handover", handoverAuto,
		handoverAuto+": instances on one node share the registration socket, and kubelet notices nothing of a takeover from which it would learn nothing; "+
			handoverAnnounce+": each takeover announces a new one")
	fs.BoolVar(&g.version, "version", false, "print the version and exit")

	logsapi.AddGoFlags(g.logging, fs)
	for _, name := range []string{
		"log-json-info-buffer-size", "log-json-split-stream", "log-text-info-buffer-size", "log-text-split-stream",
	} {
		fs.Lookup(name).Usage = "alpha, refused: no flag enables the feature gate it needs"
	}
	for _, f := range ignoredFlags() {
		fs.Var(f, f.name, "no longer has an effect")
	}
	return g
}

// ignored is a flag that some release knew and that means nothing any more.
// Its value cannot be wrong; whether it takes one of its own is as it was, so
// that the arguments after it are read as they were.
type ignored struct {
	name   string
	isBool bool
}

func (ignored) String() string     { return "" }
func (ignored) Set(string) error   { return nil }
func (f ignored) IsBoolFlag() bool { return f.isBool }

// ignoredFlags lists them with the releases that acted on them, as read from
// the tags of kubernetes-csi/node-driver-registrar and their vendored klog.
func ignoredFlags() []ignored {
	return []ignored{
		// driver-registrar 0.x (commit ddc64ece^): the CSIDriver object's business today.
		{"driver-requires-attachment", true},
		{"pod-info-mount-version", false},
		// 0.x and v1.0.0 to v1.0.1; registration goes through kubelet's plugin watcher.
		{"kubeconfig", false},
		// v1.0.x: now the wait has no limit; see --driver-wait.
		{"connection-timeout", false},
		// v2.14.0 and later: Go's runtime honours the CPU quota by itself since 1.25.
		{"automaxprocs", true},
		// glog and klog up to v2.10.1; one stream, standard error, since.
		{"add_dir_header", true},
		{"alsologtostderr", true},
		{"log_backtrace_at", false},
		{"log_dir", false},
		{"log_file", false},
		{"log_file_max_size", false},
		{"logtostderr", true},
		{"one_output", true},
		{"skip_headers", true},
		{"skip_log_headers", true},
		{"stderrthreshold", false},
	}
}

func isIgnored(f *flag.Flag) bool {
	_, ok := f.Value.(ignored)
	return ok
}

// ignoredWarning names the flags that were given in vain, or is empty.
func (g *given) ignoredWarning() string {
	var names []string
	g.fs.Visit(func(f *flag.Flag) {
		if isIgnored(f) {
			names = append(names, "--"+f.Name)
		}
	})
	if len(names) == 0 {
		return ""
	}
	return "accepted and ignored, since they no longer mean anything: " + strings.Join(names, ", ")
}

// changed lists the meaningful flags that differ from their defaults.
func (g *given) changed() []string {
	var list []string
	g.fs.Visit(func(f *flag.Flag) {
		if v := f.Value.String(); !isIgnored(f) && v != f.DefValue {
			list = append(list, "--"+f.Name+"="+v)
		}
	})
	return list
}

// oddities are the warnings about single values that are no paths.
func (o *Options) oddities() (warnings []string) {
	switch o.Mode {
	case "", "registration", "node-register": // v2.9, v2.3 to v2.8, and 0.x
	default:
		warnings = append(warnings, fmt.Sprintf("--mode=%s: only %s has a meaning of its own; this is a normal run", o.Mode, ModeProbe))
	}
	if o.HTTPEndpoint == "" {
		if o.EnablePprof {
			warnings = append(warnings, "--enable-pprof has no effect without --http-endpoint")
		}
		return warnings
	}
	_, port, err := net.SplitHostPort(o.HTTPEndpoint)
	n, notNumber := strconv.Atoi(port)
	switch {
	case err != nil:
		warnings = append(warnings, fmt.Sprintf("--http-endpoint=%s is not of the form address:port; "+
			"there will be no HTTP server: write it as :8080 or 127.0.0.1:8080", o.HTTPEndpoint))
	case notNumber == nil && (n < 0 || n > 65535):
		warnings = append(warnings, fmt.Sprintf("port %s is not between 0 and 65535; there will be no HTTP server", port))
	}
	return warnings
}
