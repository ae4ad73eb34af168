package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// cgroupRoot is the cgroup below which kubelet puts pods. Its name comes from
// the work directory, so that a later run finds what this one left.
func (n *Node) cgroupRoot() string {
	return fmt.Sprintf("holdfast-%x", sha256.Sum256([]byte(n.Dir)))[:len("holdfast-")+8]
}

// hierarchies are the mount points of cgroups: one for v2, several for v1.
func hierarchies() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var v1, v2 []string
	for line := range strings.Lines(string(data)) {
		before, after, _ := strings.Cut(line, " - ")
		if f, kind := strings.Fields(before), strings.Fields(after); len(f) > 4 && len(kind) > 0 {
			switch kind[0] {
			case "cgroup":
				v1 = append(v1, f[4])
			case "cgroup2":
				v2 = append(v2, f[4])
			}
		}
	}
	if len(v1)+len(v2) == 0 {
		return nil, errors.New("no cgroup file system is mounted: mount cgroup2 on /sys/fs/cgroup")
	}
	return append(v1, v2...), nil
}

// makeCgroups makes the root, which kubelet wants to find.
func (n *Node) makeCgroups() error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range roots {
		if err := os.MkdirAll(filepath.Join(h, n.cgroupRoot()), 0o755); err != nil {
			return fmt.Errorf("make a cgroup: %w", err)
		}
	}
	return nil
}

// removeCgroups removes the node's cgroups. Nothing lives in them any more, but
// the kernel may need a moment to notice.
func (n *Node) removeCgroups(ctx context.Context) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range roots {
		var dirs []string
		err := filepath.WalkDir(filepath.Join(h, n.cgroupRoot()), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, dir := range slices.Backward(dirs) {
			if err := removeCgroup(ctx, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func removeCgroup(ctx context.Context, dir string) error {
	var err error
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline) && ctx.Err() == nil; {
		if err = os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		pause(ctx, 20*time.Millisecond)
	}
	return fmt.Errorf("remove a cgroup: %w", errors.Join(err, ctx.Err()))
}
