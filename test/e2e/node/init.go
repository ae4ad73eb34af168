package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// component is one long-lived process of the node.
type component struct {
	name  string
	argv  func(*Node) []string
	needs func(*Node, context.Context) bool // one look whether to start it; nil is at once
}

// components in the order in which they are stopped.
var components = []component{
	{name: "kubelet", argv: (*Node).kubelet, needs: (*Node).apiServerReady},
	{name: "kube-scheduler", argv: (*Node).scheduler, needs: (*Node).apiServerReady},
	{name: "kube-controller-manager", argv: (*Node).controllerManager, needs: (*Node).apiServerReady},
	{name: "kube-apiserver", argv: (*Node).apiServer},
	{name: "etcd", argv: (*Node).etcd},
	{name: "containerd", argv: (*Node).containerd},
}

func (n *Node) logFile(name string) string { return filepath.Join(n.logs(), name+".log") }

// Init is the life of the node: process 1 of its PID namespace. It says who it
// is in the lock file, which it inherited locked as descriptor 3, makes the
// mounts, and keeps the components running until ctx ends. It then stops them;
// what they left, the kernel ends with it.
func (n *Node) Init(ctx context.Context) error {
	// The /proc of the machine still names this process by its number there.
	pid, err := os.Readlink("/proc/self")
	if err != nil {
		return err
	}
	if os.Getpid() != 1 {
		return errors.New("init is for node up to start, in namespaces of its own")
	}
	lock := os.NewFile(3, "lock")
	defer lock.Close() // not before: held, it says that this node runs
	syscall.CloseOnExec(3)
	if _, err := lock.WriteAt([]byte(pid+"\n"), 0); err != nil {
		return fmt.Errorf("say who the init is: %w", err)
	}
	if err := n.mountAll(); err != nil {
		return err
	}
	reaped := make(chan struct{})
	kept := keeper{node: n, procs: map[string]*os.Process{}}
	var running sync.WaitGroup
	contexts := map[string]context.CancelFunc{}
	for _, c := range components {
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		contexts[c.name] = stop
		running.Go(func() { kept.keep(own, c) })
	}
	go kept.reap(reaped)
	<-ctx.Done()
	say("stopping")
	kept.stop(contexts)
	running.Wait()
	close(reaped)
	return nil
}

func say(format string, args ...any) {
	fmt.Println(time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

// keeper starts the components, and again when they end.
type keeper struct {
	node  *Node
	mu    sync.Mutex
	procs map[string]*os.Process
}

// keep runs one component until its context ends.
func (k *keeper) keep(ctx context.Context, c component) {
	for c.needs != nil && !c.needs(k.node, ctx) {
		if pause(ctx, 100*time.Millisecond); ctx.Err() != nil {
			return
		}
	}
	for ctx.Err() == nil {
		began := time.Now()
		err := k.once(ctx, c)
		if ctx.Err() != nil {
			return
		}
		say("%s ended: %v; again in a moment", c.name, err)
		if time.Since(began) < 5*time.Second {
			pause(ctx, time.Second)
		}
	}
}

func (k *keeper) once(ctx context.Context, c component) error {
	log, err := os.OpenFile(k.node.logFile(c.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	argv := c.argv(k.node)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, k.node.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	k.mu.Lock() // until it is known, or reap takes it for an orphan
	if err := cmd.Start(); err != nil {
		k.mu.Unlock()
		return err
	}
	k.procs[c.name] = cmd.Process
	k.mu.Unlock()
	say("%s is process %d here", c.name, cmd.Process.Pid)
	err = cmd.Wait()
	k.mu.Lock()
	delete(k.procs, c.name)
	k.mu.Unlock()
	return err
}

// stop ends the components in order: SIGTERM, five seconds, SIGKILL. kubelet
// goes first, so that nobody starts what the end of the others stops.
func (k *keeper) stop(contexts map[string]context.CancelFunc) {
	for _, c := range components {
		contexts[c.name]()
		k.mu.Lock()
		p := k.procs[c.name]
		k.mu.Unlock()
		if p == nil {
			continue
		}
		_ = p.Signal(syscall.SIGTERM)
		if !k.gone(c.name, 5*time.Second) {
			say("%s does not stop: SIGKILL", c.name)
			_ = p.Kill()
			k.gone(c.name, 5*time.Second)
		}
	}
}

func (k *keeper) gone(name string, limit time.Duration) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); pause(context.Background(), 20*time.Millisecond) {
		k.mu.Lock()
		_, there := k.procs[name]
		k.mu.Unlock()
		if !there {
			return true
		}
	}
	return false
}

// reap takes in orphans, as process 1 must: shims of containerd above all. The
// components themselves are left to those who wait for them.
func (k *keeper) reap(done <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		for _, pid := range zombies() {
			if !k.ours(pid) {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			}
		}
	}
}

func (k *keeper) ours(pid int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.procs {
		if p.Pid == pid {
			return true
		}
	}
	return false
}

// zombies are the dead children of process 1.
func zombies() []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		data, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		_, rest, ok := strings.Cut(string(data), ") ")
		if f := strings.Fields(rest); ok && len(f) > 1 && f[0] == "Z" && f[1] == "1" {
			pids = append(pids, pid)
		}
	}
	return pids
}
