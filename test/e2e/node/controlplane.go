package node

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// controlPlane gives the path of the control plane's binary, built if need be:
// once for each content of go.mod and of its main, some minutes.
func (n *Node) controlPlane(ctx context.Context) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOARCH)
	for _, name := range []string{"go.mod", "go.sum", "cmd/controlplane/main.go", "controlplane.go"} {
		data, err := os.ReadFile(filepath.Join(n.root, name))
		if errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("%w: run this in a clone of the repository, it is built from there", err)
		}
		if err != nil {
			return "", err
		}
		_, _ = hash.Write(data)
	}
	out := filepath.Join(n.Cache, fmt.Sprintf("controlplane-%x", hash.Sum(nil)[:6]))
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	if err := os.MkdirAll(n.Cache, 0o755); err != nil {
		return "", err
	}
	version, err := n.kubernetesVersion()
	if err != nil {
		return "", err
	}
	// Without a version the components refuse each other.
	ldflags := "-s -w"
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		ldflags += fmt.Sprintf(" -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s", pkg, version, pkg, parts[0], pkg, parts[1])
	}
	old, _ := filepath.Glob(filepath.Join(n.Cache, "controlplane-*"))
	err = n.goBuild(ctx, "Kubernetes "+version+" (minutes, the first time)", out,
		"-trimpath", "-buildvcs=false", "-ldflags="+ldflags, "./cmd/controlplane")
	if err == nil {
		for _, o := range old {
			_ = os.Remove(o)
		}
	}
	return out, err
}

// kubernetesVersion is the one that go.mod requires.
func (n *Node) kubernetesVersion() (string, error) {
	data, err := os.ReadFile(filepath.Join(n.root, "go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "k8s.io/kubernetes "); ok && strings.Count(version, ".") == 2 {
			return version, nil
		}
	}
	return "", errors.New("go.mod requires no k8s.io/kubernetes")
}

// goBuild builds a static binary of this module at out, and says every ten
// seconds how far it is.
func (n *Node) goBuild(ctx context.Context, what, out string, args ...string) error {
	n.Say("building %s …", what)
	began := time.Now()
	temporary := out + ".new"
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-v", "-o", temporary}, args...)...)
	cmd.Dir = n.root
	// A module of its own: what the caller said about another does not hold.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS=", "GOARCH=")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	said := n.follow(what, stderr)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", args[len(args)-1], err, strings.Join(said, "\n"))
	}
	if took := time.Since(began); took > 2*time.Second {
		n.Say("built %s in %.0f s", what, took.Seconds())
	}
	return os.Rename(temporary, out)
}

// follow reads what go build -v says: "go: downloading …" for a module, an import
// path for a package that it compiles. The rest, which is the error, is returned.
func (n *Node) follow(what string, r io.Reader) (rest []string) {
	modules, compiled, shown := 0, 0, time.Now()
	for lines := bufio.NewScanner(r); lines.Scan(); {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "go: downloading "):
			modules++
		case !strings.ContainsAny(line, " \t#:"):
			compiled++
		default:
			rest = append(rest, line)
		}
		if time.Since(shown) > 10*time.Second {
			n.Say("building %s, %d modules fetched, %d packages compiled", what, modules, compiled)
			shown = time.Now()
		}
	}
	return rest
}
