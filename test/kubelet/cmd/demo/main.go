// Command demo shows, in under a minute and without a cluster, how a CSI driver
// is lost when two registrars overlap, and that with Holdfast it is not.
//
// It runs kubelet's own plugin manager and CSI handler, one CSI driver that
// stays up, and the registrars of pods that come and go: first those of the
// incumbent-like peer (test/peer; it is not the incumbent, but removes and binds
// as that does), then Holdfast's. All that it prints was measured in the same
// run, and it ends with 1 unless the peer lost the driver and Holdfast kept it.
//
// Run it with `make demo`; by hand in the directory test/kubelet. HOLDFAST_BIN
// and HOLDFAST_KUBELET mean what they mean to the tests, see harness.Build.
//
// Goroutines: the acts run in one, see harness.Run, and each act has one that
// looks at the path; they end before the program does, except at an interrupt.
package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "hf-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Println("building kubelet's plugin manager, a CSI driver and the peer …")
	bin, err := harness.Build(ctx, dir)
	if err != nil {
		return err
	}
	if err := introduce(ctx, bin); err != nil {
		return err
	}
	peer := act{who: "peer", kind: harness.Incumbent}
	ours := act{who: "Holdfast", kind: harness.Ours}
	err = harness.Run(ctx, func(tb testing.TB) {
		fmt.Print("\n━━ 1 ━━ an incumbent-like peer: it removes the socket by name when it starts, and when it ends\n")
		peer.play(tb, bin)
	})
	if err != nil {
		return fmt.Errorf("with the peer: %w", err)
	}
	err = harness.Run(ctx, func(tb testing.TB) {
		fmt.Print("\n━━ 2 ━━ Holdfast: an instance that ends leaves the socket to those who live\n")
		ours.play(tb, bin)
	})
	if err != nil {
		return fmt.Errorf("with Holdfast: %w", err)
	}
	summarise(os.Stdout, peer, ours)
	return verdict(peer, ours)
}

// introduce says what is about to run.
func introduce(ctx context.Context, bin harness.Binaries) error {
	version, err := exec.CommandContext(ctx, bin.Ours, "--version").Output()
	if err != nil {
		return fmt.Errorf("ask %s for its version: %w", bin.Ours, err)
	}
	fmt.Printf("\nHoldfast  %s\n", strings.TrimSpace(string(version)))
	fmt.Printf("kubelet   plugin manager and CSI handler of k8s.io/kubernetes %s\n", moduleIn(bin.Kubelet, "k8s.io/kubernetes"))
	fmt.Printf("node      one CSI driver, which stays up all the time; the registrars of pods A, B, … share its socket\n")
	fmt.Printf("columns   ms since ▶ · who answers at the registration path · does the CSINode have the driver\n")
	return nil
}

// moduleIn is the version of a module that a program was built with.
func moduleIn(program, module string) string {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return "unknown"
}
