package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// capabilities that the init needs, by their bits (linux/capability.h): mounts
// and namespaces, devices and owners in images, dropping rights for containers.
var capabilities = map[string]uint{
	"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_FOWNER": 3, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_SETPCAP": 8,
	"CAP_NET_ADMIN": 12, "CAP_SYS_CHROOT": 18, "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27,
}

// packages of Debian, and a file that says that one is installed.
var packages = []struct{ name, program string }{
	{"containerd", "containerd"},
	{"runc", "runc"},
	{"containernetworking-plugins", "/usr/lib/cni/loopback"},
}

// require fails, and says why, if this machine cannot run a node. It installs
// packages that are missing.
func (n *Node) require(ctx context.Context) error {
	var missing []string
	if os.Geteuid() != 0 {
		return errors.New("a node needs root; on a machine of yours run the tests in kind instead")
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(status), "CapEff:\t")
	line, _, _ := strings.Cut(rest, "\n")
	effective, err := strconv.ParseUint(line, 16, 64)
	if err != nil {
		return fmt.Errorf("read this process's capabilities: %w", err)
	}
	for name, bit := range capabilities {
		if effective&(1<<bit) == 0 {
			missing = append(missing, name)
		}
	}
	if err := namespaced(exec.CommandContext(ctx, "true")).Run(); err != nil {
		missing = append(missing, fmt.Sprintf("mount and PID namespaces (%v)", err))
	}
	missing = append(missing, n.missingCgroups()...)
	if len(missing) > 0 {
		return fmt.Errorf("this machine cannot run a node, it lacks: %s", strings.Join(missing, ", "))
	}
	return n.install(ctx)
}

// missingCgroups are cgroup controllers that kubelet wants, and hierarchies in which
// no cgroup can be made.
func (n *Node) missingCgroups() []string {
	roots, err := hierarchies()
	if err != nil {
		return []string{err.Error()}
	}
	have := map[string]bool{}
	var missing []string
	for _, h := range roots {
		probe := filepath.Join(h, n.cgroupRoot()+"-probe")
		if err := errors.Join(os.MkdirAll(probe, 0o755), os.Remove(probe)); err != nil {
			missing = append(missing, fmt.Sprintf("the right to make a cgroup (%v)", err))
		}
		// v2 says what it has; in v1 the mounts do.
		data, _ := os.ReadFile(h + "/cgroup.controllers")
		for name := range strings.FieldsSeq(string(data)) {
			have[name] = true
		}
		for name := range strings.SplitSeq(h[strings.LastIndexByte(h, '/')+1:], ",") {
			have[name] = true
		}
	}
	for _, name := range []string{"cpu", "cpuset", "memory", "pids"} {
		if !have[name] {
			missing = append(missing, "the cgroup controller "+name)
		}
	}
	return missing
}

// install installs Debian's packages. The daemon that comes with containerd is
// not used, and not started where there is no systemd.
func (n *Node) install(ctx context.Context) error {
	var names []string
	for _, p := range packages {
		if _, err := exec.LookPath(p.program); err != nil {
			names = append(names, p.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%s: not installed, and there is no apt-get to install them with", strings.Join(names, ", "))
	}
	n.Say("installing %s …", strings.Join(names, ", "))
	began := time.Now()
	install := append([]string{"install", "--yes", "--no-install-recommends"}, names...)
	if _, err := apt(ctx, install...); err != nil { // the lists may be missing, or old
		if out, err := apt(ctx, "update"); err != nil {
			return fmt.Errorf("apt-get update: %w\n%s", err, out)
		}
		if out, err := apt(ctx, install...); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(install, " "), err, out)
		}
	}
	n.Say("installed in %.0f s", time.Since(began).Seconds())
	return nil
}

func apt(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
