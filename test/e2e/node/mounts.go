package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// masks are directories that components of Kubernetes write to whatever they are
// told; in the node's mount namespace they are directories of its own.
var masks = []struct{ on, dir string }{
	{"/var/lib/kubelet", "kubelet"}, // so that host paths are what they are anywhere
	{"/run/containerd", "run"},      // sockets of shims
	{"/var/log", "log"},             // pods, containers
}

// sysctls are what kubelet sets when it starts (container_manager_linux.go
// v1.36.3, setupKernelTunables). It finds files there which say so already.
var sysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// mountAll is done by the init, in its own mount namespace.
func (n *Node) mountAll() error {
	// Not even by mistake anything of this goes back to the machine.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make all mounts private: %w", err)
	}
	for _, m := range masks {
		if err := bind(n.path(m.dir), m.on); err != nil {
			return err
		}
	}
	// For drivers, which mount for kubelet (mountPropagation: Bidirectional).
	if err := unix.Mount("", "/var/lib/kubelet", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make /var/lib/kubelet shared: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for name, value := range sysctls {
		file := n.path("sysctl", strings.ReplaceAll(name, "/", "."))
		if err := writeFile(file, value+"\n", 0o644); err != nil {
			return err
		}
		if err := bind(file, filepath.Join("/proc/sys", name)); err != nil {
			return err
		}
	}
	return nil
}

func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", from, to, err)
	}
	return nil
}

// madeName lists the mount points that had to be made on the machine.
const madeName = "mount-points"

// makeMountPoints makes what masks need and the machine lacks, and writes down
// what, before it does.
func (n *Node) makeMountPoints() error {
	var made []string
	for _, m := range masks {
		if _, err := os.Stat(m.on); errors.Is(err, os.ErrNotExist) {
			made = append(made, m.on)
		} else if err != nil {
			return err
		}
	}
	if err := writeFile(n.path(madeName), strings.Join(made, "\n"), 0o600); err != nil {
		return err
	}
	for _, dir := range made {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) removeMountPoints() error {
	data, err := os.ReadFile(n.path(madeName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for dir := range strings.FieldsSeq(string(data)) {
		// What is not empty is somebody else's by now.
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			n.Say("left %s: %v", dir, err)
		}
	}
	return nil
}

// noMounts makes sure that removing the work directory removes only files of it.
func (n *Node) noMounts() error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4]+"/", n.Dir+"/") {
			return fmt.Errorf("%s is a mount, and the node makes none that is seen here: unmount it, then call node down", f[4])
		}
	}
	return nil
}

// removeTree removes a directory, and last of it the lock, which says what it is.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == lockName {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(dir)
}
