package options

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	logsapi "k8s.io/component-base/logs/api/v1"
)

// ModeProbe is the value of --mode that makes the program an exec probe which
// always succeeds. Releases v2.3 to v2.8 looked for a marker file in this
// mode; since v2.9 it is a no-op that old manifests still call.
const ModeProbe = "kubelet-registration-probe"

// The values of --compat.
const (
	CompatOff    = "off"
	CompatStrict = "strict"
)

// The values of --handover.
const (
	handoverAuto     = "auto"
	handoverAnnounce = "announce"
)

// The values of --on-driver-restart.
const (
	restartCompare = "compare"
	restartAlways  = "always"
	restartNever   = "never"
)

// Exit codes, as the incumbent's.
const (
	codeOK    = 0
	codeBad   = 1 // the arguments are understood, but cannot be worked with
	codeUsage = 2 // the arguments are not understood (the flag package's code)
)

// Options is what the command line says. It is a value: nothing changes it
// after Parse.
type Options struct {
	// CSIAddress is the file system path of the CSI driver's socket as this
	// process sees it: without unix: in front, absolute and normalised.
	CSIAddress string
	// KubeletRegistrationPath is the path of the same socket as kubelet sees
	// it on the host, normalised. It is announced to kubelet as the endpoint.
	KubeletRegistrationPath string
	// PluginRegistrationPath is the directory, as this process sees it, in
	// which the registration socket is made: absolute and normalised.
	PluginRegistrationPath string
	// HTTPEndpoint is the TCP address of the HTTP server, empty for none.
	// --health-port=N is folded into it as ":N".
	HTTPEndpoint string
	// Timeout is the deadline of one GetPluginInfo call; greater than zero.
	Timeout time.Duration
	// DriverWait is how long to wait for the driver's first answer before
	// giving up; zero is without limit.
	DriverWait time.Duration
	// EnablePprof asks for net/http/pprof at HTTPEndpoint.
	EnablePprof bool
	// KeepEndpoint asks for an endpoint that keeps a name; false with --compat=strict.
	KeepEndpoint bool
	// Handover asks for a registration socket that instances share; false with
	// --compat=strict.
	Handover bool
	// OnDriverRestart says when a driver that restarts alone is announced again:
	// compare, always or never.
	OnDriverRestart string
	// Strict says that nothing is to be done that the incumbent does not do.
	Strict bool
	// Mode is --mode as given. ModeProbe never gets as far as a run.
	Mode string
	// Version says that --version was asked for.
	Version bool
	// Warnings are sentences for the log, one line each: what was ignored,
	// what was normalised, what looks wrong.
	Warnings []string
	// Changed lists the flags whose value differs from the default, as
	// --name=value with the value as given, sorted by name. Flags that are
	// accepted and ignored are not among them.
	Changed []string

	logging *logsapi.LoggingConfiguration
}

// Outcome says what is to be done with the Options.
type Outcome struct {
	// Exit: the process is to end with Code. Otherwise it is to run.
	Exit bool
	Code int
	// Reason is the sentence for the log; empty if Code is 0.
	Reason string
	// Told: Parse wrote everything there is to say to stderr (usage, help);
	// the log has nothing to add.
	Told bool
	// Probe: these are the arguments of an exec probe, which runs beside the
	// container's own process and must not speak for it, in the termination
	// log for instance.
	Probe bool
}

// Parse reads the arguments, without the program's name. Usage and parse errors
// are written to stderr; everything else is in the values returned. If the
// Outcome is an exit, Options holds what had been understood by then.
//
// Parse is safe for concurrent use.
func Parse(args []string, stderr io.Writer) (Options, Outcome) {
	cwd, err := os.Getwd()
	if err != nil {
		cwd = "" // what is relative then stays so
	}
	return parse(args, stderr, platform{windows: windowsPaths, cwd: cwd})
}

func parse(args []string, stderr io.Writer, p platform) (Options, Outcome) {
	g := newGiven()
	err := g.fs.Parse(args)
	out := Outcome{Exit: true, Probe: g.mode == ModeProbe}
	switch {
	case errors.Is(err, flag.ErrHelp):
		g.usage(stderr)
		out.Told = true
		return g.options(), out
	case err != nil:
		out.Code, out.Told = codeUsage, true
		out.Reason = g.explain(err)
		g.usage(stderr)
		fmt.Fprintf(stderr, "\n%s\n", out.Reason)
		return g.options(), out
	}

	o := g.options()
	stray := g.stray(args)
	o.Warnings = append(o.Warnings, stray.warnings()...)
	out.Code = codeBad
	if err := validateLogging(g.logging); err != nil {
		out.Reason = fmt.Sprintf("logging flags: %v", err)
		return o, out
	}
	if o.Version {
		out.Code = codeOK
		return o, out
	}
	if g.kubeletPath == "" {
		out.Reason = "--kubelet-registration-path is required: give the path of the CSI driver's socket on the host, " +
			"such as /var/lib/kubelet/plugins/<driver name>/csi.sock" + stray.excuse("kubelet-registration-path")
		return o, out
	}
	if out.Probe {
		out.Code = codeOK
		return o, out
	}
	if problems := g.finish(&o, p); len(problems) > 0 {
		out.Reason = strings.Join(problems, "; ")
		return o, out
	}
	return o, Outcome{}
}

// options returns what was given so far, without any judgement of it.
func (g *given) options() Options {
	o := Options{
		CSIAddress:              g.csiAddress,
		KubeletRegistrationPath: g.kubeletPath,
		PluginRegistrationPath:  g.pluginPath,
		HTTPEndpoint:            g.httpEndpoint,
		Timeout:                 g.timeout,
		DriverWait:              g.driverWait,
		EnablePprof:             g.pprof,
		KeepEndpoint:            g.keepEndpoint && g.compat != CompatStrict,
		Strict:                  g.compat == CompatStrict,
		OnDriverRestart:         g.onRestart,
		Handover:                g.handover == handoverAuto && g.compat != CompatStrict,
		Mode:                    g.mode,
		Version:                 g.version,
		Changed:                 g.changed(),
		logging:                 g.logging,
	}
	if w := g.ignoredWarning(); w != "" {
		o.Warnings = append(o.Warnings, w)
	}
	return o
}

// finish judges and normalises what is needed for a run. It returns what makes
// a run impossible; the incumbent's own check comes first.
func (g *given) finish(o *Options, p platform) (problems []string) {
	if g.healthPort > 0 && g.httpEndpoint != "" {
		return []string{fmt.Sprintf("--health-port=%d and --http-endpoint=%s exclude each other: give only --http-endpoint",
			g.healthPort, g.httpEndpoint)}
	}
	if g.healthPort > 0 {
		o.HTTPEndpoint = ":" + strconv.Itoa(g.healthPort)
	}
	if o.Timeout <= 0 {
		problems = append(problems, fmt.Sprintf("--timeout=%v is not greater than zero: leave it out for %v", o.Timeout, defaultTimeout))
	}
	if o.DriverWait < 0 {
		problems = append(problems, fmt.Sprintf("--driver-wait=%v is negative: 0 waits without limit", o.DriverWait))
	}
	if g.compat != CompatOff && g.compat != CompatStrict {
		problems = append(problems, fmt.Sprintf("--compat=%s is neither %s nor %s", g.compat, CompatOff, CompatStrict))
	}
	if g.handover != handoverAuto && g.handover != handoverAnnounce {
		problems = append(problems, fmt.Sprintf("--handover=%s is neither %s nor %s", g.handover, handoverAuto, handoverAnnounce))
	}
	switch g.onRestart {
	case restartCompare, restartAlways, restartNever:
	default:
		problems = append(problems, fmt.Sprintf("--on-driver-restart=%s is neither %s, %s nor %s", g.onRestart, restartCompare, restartAlways, restartNever))
	}

	var c checked
	o.CSIAddress = p.csiAddress(&c, g.csiAddress)
	o.KubeletRegistrationPath = p.kubeletPath(&c, g.kubeletPath)
	o.PluginRegistrationPath = p.registrationDir(&c, g.pluginPath)
	p.compare(&c, o)
	o.Warnings = append(o.Warnings, c.warnings...)
	o.Warnings = append(o.Warnings, o.oddities()...)
	return append(problems, c.problems...)
}
