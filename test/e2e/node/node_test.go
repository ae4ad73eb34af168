package node_test

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/node"
)

// cacheName is the variable that says where a built control plane is; the tests
// that start a node are not for those who only run go test.
const cacheName = "HOLDFAST_E2E_CACHE"

// TestMain is the init too: Up starts its own executable.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[3] == "init" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		n, err := node.New(node.Config{
			Dir: strings.TrimPrefix(os.Args[1], "--dir="), Cache: strings.TrimPrefix(os.Args[2], "--cache="),
		}, ".")
		if err == nil {
			err = n.Init(ctx)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

// TestLeavesNothing: after Down the machine is as it was, whatever came between.
func TestLeavesNothing(t *testing.T) {
	cache := os.Getenv(cacheName)
	if cache == "" {
		t.Skipf("NOT TESTED: %s is not set; make e2e-node sets it", cacheName)
	}
	dir := filepath.Join(t.TempDir(), "n")
	n, err := node.New(node.Config{Dir: dir, Cache: cache, Say: t.Logf}, ".")
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	before := machine(t, dir)
	up := func(t *testing.T) {
		t.Helper()
		if err := n.Up(ctx); err != nil {
			t.Fatal(err)
		}
	}
	clean := func(t *testing.T) {
		t.Helper()
		if err := n.Down(context.WithoutCancel(ctx)); err != nil {
			t.Fatal(err)
		}
		if after := machine(t, dir); !slices.Equal(before, after) {
			for _, line := range after {
				if !slices.Contains(before, line) {
					t.Errorf("left: %s", line)
				}
			}
			for _, line := range before {
				if !slices.Contains(after, line) {
					t.Errorf("missing: %s", line)
				}
			}
		}
	}
	t.Cleanup(func() { _ = n.Down(context.Background()) })

	t.Run("down", func(t *testing.T) { up(t); clean(t) })
	t.Run("init killed", func(t *testing.T) {
		up(t)
		killInit(t, dir)
		if left := processes(t, dir); len(left) > 0 {
			t.Errorf("outlived the init: %v", left)
		}
		clean(t)
	})
	t.Run("init killed, then up", func(t *testing.T) { up(t); killInit(t, dir); up(t); clean(t) })
	t.Run("up interrupted", func(t *testing.T) {
		short, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
		defer cancel()
		if err := n.Up(short); err == nil {
			t.Log("it was up already")
		} else if _, err := os.Stat(dir); err == nil {
			t.Errorf("an interrupted up left its directory")
		}
		clean(t)
	})
	t.Run("not ours", func(t *testing.T) {
		if err := os.MkdirAll(filepath.Join(dir, "somebody's"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := n.Down(ctx); err == nil {
			t.Error("down took somebody's directory for its own")
		}
		if _, err := os.Stat(filepath.Join(dir, "somebody's")); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
}

// killInit kills the init and waits for its end.
func killInit(t *testing.T, dir string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "init.lock"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d does not end", pid)
		}
	}
}

// machine is all of the machine that a node could change, in lines.
func machine(t *testing.T, dir string) []string {
	t.Helper()
	lines := processes(t, dir)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		lines = append(lines, "mount "+line)
	}
	for _, s := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	} {
		value, _ := os.ReadFile(filepath.Join("/proc/sys", s))
		lines = append(lines, s+" = "+string(value))
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "holdfast") {
			lines = append(lines, "cgroup "+path)
		}
		return nil
	})
	for _, path := range []string{
		dir, "/var/lib/kubelet", "/run/containerd", "/var/log/pods", "/var/log/containers", "/var/lib/containerd",
		"/opt/containerd", "/usr/libexec/kubernetes", "/etc/kubernetes", "/var/run/kubernetes", "/var/lib/cni", "/run/runc",
	} {
		if _, err := os.Lstat(path); err == nil {
			lines = append(lines, "exists "+path)
		}
	}
	slices.Sort(lines)
	return lines
}

// processes whose command line, or program, is of this node.
func processes(t *testing.T, dir string) (lines []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		argv, _ := os.ReadFile(f)
		exe, _ := os.Readlink(filepath.Join(filepath.Dir(f), "exe"))
		text := strings.ReplaceAll(string(argv), "\x00", " ")
		if strings.Contains(text+exe, dir) || strings.HasPrefix(text, "/pause") || strings.Contains(text, "containerd-shim") {
			lines = append(lines, "process "+text)
		}
	}
	return lines
}
