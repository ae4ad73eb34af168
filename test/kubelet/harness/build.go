package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Binaries are the programs that tests run.
type Binaries struct {
	Ours, Incumbent, Driver, Kubelet string

	plain string
}

// Plain are the same programs, with ours as it ships: for what needs many of them, or
// their speed.
func (b Binaries) Plain() Binaries {
	b.Ours = b.plain
	return b
}

// Build builds the programs into dir: ours with the race detector, and once more
// without, the others plain, kubelet from this module. Run in this module's root
// directory.
//
// Environment: HOLDFAST_BIN names a registrar to test instead of ours;
// HOLDFAST_KUBELET is the kubelet's version, such as v1.34.4, if it is not the
// one in go.mod: then v1.34.4.mod is used.
func Build(ctx context.Context, dir string) (Binaries, error) {
	root := filepath.Join("..", "..")
	b := Binaries{
		Ours:      os.Getenv("HOLDFAST_BIN"),
		Incumbent: filepath.Join(dir, "peer"),
		Driver:    filepath.Join(dir, "driver"),
		Kubelet:   filepath.Join(dir, "kubelet"),
	}
	if b.Ours == "" {
		b.Ours = filepath.Join(dir, "csi-node-driver-registrar")
		if err := build(ctx, root, b.Ours, "-race", "./cmd/csi-node-driver-registrar"); err != nil {
			return b, err
		}
		b.plain = b.Ours + "-plain"
		if err := build(ctx, root, b.plain, "./cmd/csi-node-driver-registrar"); err != nil {
			return b, err
		}
	} else if abs, err := filepath.Abs(b.Ours); err != nil {
		return b, err
	} else {
		b.Ours, b.plain = abs, abs
	}
	if err := build(ctx, root, b.Incumbent, "./test/peer"); err != nil {
		return b, err
	}
	if err := build(ctx, root, b.Driver, "./test/driver"); err != nil {
		return b, err
	}
	return b, build(ctx, ".", b.Kubelet, append(kubeletArgs(os.Getenv("HOLDFAST_KUBELET")), "-ldflags=-s -w", "./cmd/kubelet")...)
}

// BuildDriver builds the CSI driver alone into dir, for those who need no kubelet.
func BuildDriver(ctx context.Context, dir string) (string, error) {
	driver := filepath.Join(dir, "driver")
	return driver, build(ctx, filepath.Join("..", ".."), driver, "./test/driver")
}

// kubeletArgs selects the module file and the build tag of a kubelet's version:
// v1.34.4 is v1.34.4.mod and kubelet_v1_34.
func kubeletArgs(version string) []string {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return nil
	}
	return []string{"-modfile=" + version + ".mod", "-tags=kubelet_" + parts[0] + "_" + parts[1]}
}

func build(ctx context.Context, dir, out string, args ...string) error {
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", out}, args...)...)
	cmd.Dir = dir
	// A module of its own: what the caller said about another does not hold.
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", strings.Join(args, " "), err, said.String())
	}
	fmt.Fprintf(os.Stderr, "built %s in %.1f s\n", filepath.Base(out), time.Since(began).Seconds())
	return nil
}

// ranFile is written at the end of a run and read by every test.
const ranFile = ".ran"

// ForbidCaching keeps go test from answering "(cached)": what is tested comes
// from another module, which go test does not look at. It remembers no result
// that depends on a file of this module that is younger than two seconds.
func ForbidCaching() {
	_ = os.WriteFile(ranFile, nil, 0o600) // in a read-only tree -count=1 is up to the caller
}

func dependOnRun() { _, _ = os.ReadFile(ranFile) }
