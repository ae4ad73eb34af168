package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Config says where a node keeps its things.
type Config struct {
	Dir   string               // work directory; removed at the end
	Cache string               // what is built once, and the logs of the last run
	Say   func(string, ...any) // progress
}

// Node is a node on this machine, running or not.
type Node struct {
	Config
	root string // this module's directory, to build from
}

// New checks the configuration. root is the directory of this module's go.mod.
func New(c Config, root string) (*Node, error) {
	for _, dir := range []*string{&c.Dir, &c.Cache, &root} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return nil, err
		}
		*dir = abs
	}
	// containerd's socket has the longest path of those that are dialled by it.
	if n := len(filepath.Join(c.Dir, "containerd.sock.ttrpc")); n > 107 {
		return nil, fmt.Errorf("work directory %s: a socket's path in it would have %d bytes, and may have 107; choose a shorter one", c.Dir, n)
	}
	if c.Dir == "/" || strings.HasPrefix(c.Cache+"/", c.Dir+"/") {
		return nil, fmt.Errorf("work directory %s: it is removed at the end, and must not hold anything else", c.Dir)
	}
	if c.Say == nil {
		c.Say = func(string, ...any) {}
	}
	return &Node{Config: c, root: root}, nil
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (n *Node) Kubeconfig() string { return filepath.Join(n.Dir, "kubeconfig") }

func (n *Node) path(elem ...string) string {
	return filepath.Join(append([]string{n.Dir}, elem...)...)
}

func (n *Node) logs() string { return filepath.Join(n.Cache, "logs") }

// Up starts the node and returns when it is Ready. What an earlier one left is
// removed first; what a failed Up made is removed by itself.
func (n *Node) Up(ctx context.Context) (err error) {
	if err := n.require(ctx); err != nil {
		return err
	}
	if err := n.Down(ctx); err != nil {
		return err
	}
	control, err := n.controlPlane(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			n.Say("the logs are in %s", n.logs())
			err = errors.Join(err, n.Down(context.WithoutCancel(ctx)))
		}
	}()
	if err := n.prepare(ctx, control); err != nil {
		return err
	}
	if err := n.startInit(); err != nil {
		return err
	}
	if err := n.loadPause(ctx); err != nil {
		return err
	}
	return n.awaitReady(ctx)
}

// prepare writes everything that Init and the components read.
func (n *Node) prepare(ctx context.Context, control string) error {
	for _, dir := range []string{n.logs(), n.path("kubelet"), n.path("run"), n.path("log"), n.path("bin")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(n.Dir, 0o700); err != nil { // tokens and keys
		return err
	}
	for _, c := range components {
		if err := os.Remove(n.logFile(c.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	// A copy of its own: the cache may be cleaned while the node runs.
	if err := linkOrCopy(control, n.path("bin", "controlplane")); err != nil {
		return err
	}
	if err := os.Symlink("controlplane", n.path("bin", "kubectl")); err != nil {
		return err
	}
	ports, err := freePorts(6)
	if err != nil {
		return err
	}
	if err := n.writeCertificates(); err != nil {
		return err
	}
	if err := n.writeConfigs(ctx, ports); err != nil {
		return err
	}
	if err := n.makeMountPoints(); err != nil {
		return err
	}
	return n.makeCgroups()
}

// startInit starts this program again as the node's init, in namespaces of its
// own, and leaves it running.
func (n *Node) startInit() error {
	lock, err := n.openLock()
	if err != nil {
		return err
	}
	defer lock.Close()
	// The lock belongs to the open file, which the init inherits: it is held from
	// here to the init's end.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("lock %s: %w: does another node start in the same directory?", lock.Name(), err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := linkOrCopy(self, n.path("bin", "node")); err != nil { // go run removes its own
		return err
	}
	log, err := os.Create(n.logFile("init"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := namespaced(exec.Command(n.path("bin", "node"), "--dir="+n.Dir, "--cache="+n.Cache, "init"))
	cmd.Dir = n.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{lock}
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + n.Dir}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the node's init: %w", err)
	}
	go func() { _ = cmd.Wait() }() // an end is seen by the lock
	return nil
}

// namespaced gives a command the namespaces of an init.
func namespaced(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:       true,
		Cloneflags:   syscall.CLONE_NEWPID,
		Unshareflags: syscall.CLONE_NEWNS, // makes all mounts private, too
	}
	return cmd
}

// Down stops the node, if it runs, and removes everything that it made.
func (n *Node) Down(ctx context.Context) error {
	_, err := os.Lstat(n.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	began := time.Now()
	if _, err := os.Stat(n.path(lockName)); err == nil {
		if err := n.stopInit(ctx); err != nil {
			return err
		}
	} else if entries, err := os.ReadDir(n.Dir); err != nil || len(entries) > 0 {
		return errors.Join(err, fmt.Errorf("%s is not a node's work directory (it has no %s): choose another, or remove it yourself", n.Dir, lockName))
	}
	if err := n.removeCgroups(ctx); err != nil {
		return err
	}
	if err := n.noMounts(); err != nil {
		return err
	}
	if err := n.removeMountPoints(); err != nil {
		return err
	}
	if err := removeTree(n.Dir); err != nil {
		return err
	}
	n.Say("removed the node in %s (%.1f s)", n.Dir, time.Since(began).Seconds())
	return nil
}

// Running reports whether the node's init lives.
func (n *Node) Running() bool {
	lock, err := os.Open(n.path(lockName))
	if err != nil {
		return false
	}
	defer lock.Close()
	return held(lock)
}

// Run runs a command with KUBECONFIG, and with kubectl and node in its PATH. It
// ends with ctx: by SIGTERM, and ten seconds later by SIGKILL.
func (n *Node) Run(ctx context.Context, argv []string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+n.Kubeconfig(), "PATH="+os.Getenv("PATH")+":"+n.path("bin"))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd.Run()
}
