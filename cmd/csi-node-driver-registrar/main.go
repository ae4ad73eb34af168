// Command csi-node-driver-registrar registers a CSI driver with kubelet, in
// the place of the program of the same name from kubernetes-csi.
//
// It parses the command line (pkg/options), runs (pkg/registrar) and exits:
// with 0 after SIGTERM or SIGINT, with 2 for arguments it does not understand,
// with 1 for anything else that ends it. Nothing else in this program ends the
// process. The reason for a code other than 0 is in the log, and in the
// container's termination log where kubelet looks for it.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/holdfast-csi/node-driver-registrar/cmd/csi-node-driver-registrar/internal/early"
	"github.com/holdfast-csi/node-driver-registrar/pkg/options"

	"k8s.io/klog/v2"
)

// terminationLog is Kubernetes' default terminationMessagePath. Kubelet mounts
// a file there.
const terminationLog = "/dev/termination-log"

func main() {
	os.Exit(process{os.Args[1:], os.Stdout, os.Stderr, terminationLog}.run())
}

// process is what the program gets from the outside.
type process struct {
	args           []string
	stdout, stderr io.Writer
	terminationLog string
}

// run returns the exit code.
func (p process) run() int {
	ctx, stop := early.Context()
	defer stop()
	defer klog.Flush()
	boundHeap()

	o, out := options.Parse(p.args, p.stderr)
	built := readBuild()
	switch {
	case out.Exit && out.Code == 0:
		if o.Version && !out.Told {
			fmt.Fprintln(p.stdout, built)
		}
		return 0
	case out.Told:
		p.leaveReason(out)
		return out.Code
	}

	// Bad logging flags are out's reason already; klog then writes text.
	if err := o.ApplyLogging(); err != nil && !out.Exit {
		out = options.Outcome{Exit: true, Code: 1, Reason: fmt.Sprintf("logging flags: %v", err)}
	}
	klog.InfoS(product, "version", built.version, "commit", built.commit, "flags", o.Changed)
	for _, w := range o.Warnings {
		klog.Warning(w)
	}
	if out.Exit {
		klog.ErrorS(errors.New(out.Reason), "Cannot start")
		p.leaveReason(out)
		return out.Code
	}
	if err := bounded(ctx, lastCall, func() error { return register(ctx, o, built.version) }); err != nil {
		klog.ErrorS(err, "Exiting")
		p.leaveReason(options.Outcome{Reason: err.Error()})
		return 1
	}
	return 0
}

// boundHeap collects garbage twice as early as Go does by default, unless the
// environment says otherwise. The live heap is about 1 MB, but by default grows
// to 4 MB before anything is collected: 10,000 health probes left 7.8 MB of
// anonymous memory behind, and 5.5 MB so, for no more processor time. A limit
// (GOMEMLIMIT) near that size is no way: at 6 MiB it took 17 times the time.
func boundHeap() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// leaveReason writes why the process ends to the termination log. An exec
// probe shares that file with the container's own process, whose it is.
func (p process) leaveReason(out options.Outcome) {
	if out.Probe {
		return
	}
	if err := writeTerminationLog(p.terminationLog, out.Reason); err != nil {
		klog.V(4).InfoS("No termination message", "err", err)
	}
}
