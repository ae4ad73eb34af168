package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// snapshotter is what containerd makes containers' roots with: overlayfs, or, where
// the kernel has none or the work directory is on one itself, as in a container,
// copies. Images of one binary can be copied.
func (n *Node) snapshotter(ctx context.Context) (string, error) {
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(filesystems), "\toverlay\n") && exec.CommandContext(ctx, "modprobe", "overlay").Run() != nil {
		return "native", nil
	}
	for dir := n.Dir; ; dir = filepath.Dir(dir) { // it may have to be made
		var s unix.Statfs_t
		err := unix.Statfs(dir, &s)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("look at the file system of %s: %w", dir, err)
		}
		if s.Type == unix.OVERLAYFS_SUPER_MAGIC {
			return "native", nil
		}
		return "overlayfs", nil
	}
}
