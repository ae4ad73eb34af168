package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Plugin is one CSI driver's place on a node.
type Plugin struct {
	Driver string // the driver's name
	Dir    string // the driver's directory
	Socket string // csi.sock in it, as the driver, the registrar and kubelet name it
	// Endpoint is the symlink beside csi.sock that our registrars announce.
	Endpoint string
	Path     string // the registration socket
	Lease    string // the node-local lock of our registrars

	node    *Node
	dialled []*Control
}

// AddPlugin makes room for one more CSI driver.
func (n *Node) AddPlugin(driver string) *Plugin {
	n.tb.Helper()
	dir := filepath.Join(n.Root, "plugins", driver)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.tb.Fatal(err)
	}
	return &Plugin{
		Driver: driver, Dir: dir, Socket: filepath.Join(dir, "csi.sock"), Endpoint: filepath.Join(dir, ".csi.sock.ep"),
		Path:  filepath.Join(n.Registry, driver+"-reg.sock"),
		Lease: filepath.Join(n.Registry, "."+driver+"-reg.lease"),
		node:  n,
	}
}

// Start starts a registrar, ours or an incumbent, with the flags every manifest
// gives and these.
func (pl *Plugin) Start(kind Kind, args ...string) *Proc {
	pl.node.tb.Helper()
	return pl.StartUnder(nil, kind, args...)
}

// StartUnder is Start with a launcher: a command line that executes the rest of
// its arguments in its own process.
func (pl *Plugin) StartUnder(launcher []string, kind Kind, args ...string) *Proc {
	pl.node.tb.Helper()
	program := pl.node.bin.Ours
	if kind == Incumbent {
		program = pl.node.bin.Incumbent
	} else {
		args = slices.Concat([]string{"-v=5"}, pl.node.Args, args)
	}
	argv := append(launcher[:len(launcher):len(launcher)], program,
		"--csi-address="+pl.Socket, "--kubelet-registration-path="+pl.Socket, "--plugin-registration-path="+pl.node.Registry)
	return pl.node.start(kind, append(argv, args...), nil)
}

// StartDriver starts a CSI driver and waits until it serves.
func (pl *Plugin) StartDriver(args ...string) *Proc {
	pl.node.tb.Helper()
	p := pl.StartLateDriver(args...)
	p.AwaitSaid("serving ", 10*time.Second)
	return p
}

// StartLateDriver starts a CSI driver that may take its time to serve.
func (pl *Plugin) StartLateDriver(args ...string) *Proc {
	pl.node.tb.Helper()
	argv := append([]string{pl.node.bin.Driver, "--endpoint=" + pl.Socket, "--name=" + pl.Driver}, args...)
	return pl.node.start(Driver, argv, nil)
}

// Control is the name of a registrar's control socket in the registration directory,
// if it runs in the mount namespace of the test.
func (pl *Plugin) Control(p *Proc) string { return pl.ControlOf(p.PID()) }

// ControlOf is the same of a process number.
func (pl *Plugin) ControlOf(pid int) string {
	pl.node.tb.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat("/proc/self/ns/mnt", &st); err != nil {
		pl.node.Fatalf("which mount namespace this is: %v", err)
	}
	return fmt.Sprintf(".%s-reg.%d.%d.ctl", pl.Driver, st.Ino, pid)
}

// Look asks who accepts at the registration path.
func (pl *Plugin) Look() Sight { return look(context.Background(), pl.Path) }

// Accepts reports whether this process answers at the registration path.
func (pl *Plugin) Accepts(p *Proc) bool {
	s := pl.Look()
	return s.Answered() && s.PID == p.PID() && s.Driver == pl.Driver
}

// AwaitAcceptor waits until one of these answers at the registration path, and
// says who.
func (pl *Plugin) AwaitAcceptor(within time.Duration, procs ...*Proc) *Proc {
	pl.node.tb.Helper()
	names := make([]string, len(procs))
	for i, p := range procs {
		names[i] = p.Name
	}
	var found *Proc
	var sight Sight
	if !pl.node.Try(within, func() bool {
		sight = pl.Look()
		for _, p := range procs {
			if sight.Answered() && sight.PID == p.PID() {
				found = p
			}
		}
		return found != nil
	}) {
		pl.node.Fatalf("waited %v in vain for %s to accept at the path; last seen: %v", within, strings.Join(names, " or "), sight)
	}
	if sight.Driver != pl.Driver {
		pl.node.Errorf("%s announces %q, want %q", found.Name, sight.Driver, pl.Driver)
	}
	pl.node.Mark("%s accepts at %s", found.Name, filepath.Base(pl.Path))
	return found
}

// Registered reports whether the present kubelet has registered the driver and
// the CSINode has it.
func (pl *Plugin) Registered() bool {
	_, in := pl.node.CSINode.NodeID(pl.Driver)
	return in && pl.node.registered(pl.Driver)
}

// AwaitRegistered waits for Registered.
func (pl *Plugin) AwaitRegistered(within time.Duration) {
	pl.node.tb.Helper()
	pl.node.Await(fmt.Sprintf("kubelet to register %s", pl.Driver), within, pl.Registered)
}

// AwaitGone waits until kubelet let go of the driver and the CSINode lacks it.
func (pl *Plugin) AwaitGone(within time.Duration) {
	pl.node.tb.Helper()
	pl.node.Await(fmt.Sprintf("the CSINode to lack %s", pl.Driver), within, func() bool {
		_, in := pl.node.CSINode.NodeID(pl.Driver)
		return !in && !pl.node.registered(pl.Driver)
	})
}

// AwaitNodeID waits until the CSINode has the driver with this node ID.
func (pl *Plugin) AwaitNodeID(id string, within time.Duration) {
	pl.node.tb.Helper()
	pl.node.Await(fmt.Sprintf("the CSINode to have %s with node ID %s", pl.Driver, id), within, func() bool {
		got, in := pl.node.CSINode.NodeID(pl.Driver)
		return in && got == id
	})
}

// AssertOut checks how long the CSINode lacked the driver since from: at most
// limit, in at most pairs of unregister and register.
func (pl *Plugin) AssertOut(from time.Time, limit time.Duration, pairs int) {
	pl.node.tb.Helper()
	now := time.Now()
	if out := pl.node.CSINode.OutFor(pl.Driver, from, now); out > limit {
		pl.node.Errorf("the CSINode lacked %s for %v, want at most %v", pl.Driver, out.Round(time.Millisecond), limit)
	}
	if got := pl.node.CSINode.Pairs(pl.Driver, from, now); got > pairs {
		pl.node.Errorf("%d pairs of unregister and register, want at most %d", got, pairs)
	}
}

// FileEvents counts what kubelet can see of the registration socket's name since
// from: creates (a rename to it included) and removes.
func (pl *Plugin) FileEvents(from time.Time) (creates, removes int) {
	name := filepath.Base(pl.Path)
	for _, r := range pl.node.Trace.Since(from, "files") {
		switch r.Text {
		case "create " + name:
			creates++
		case "remove " + name:
			removes++
		}
	}
	return creates, removes
}

// Removes are the times at which the registration socket's name was seen to go,
// since from. They are known some milliseconds late.
func (pl *Plugin) Removes(from time.Time) []time.Time {
	var times []time.Time
	for _, r := range pl.node.Trace.Since(from, "files") {
		if r.Text == "remove "+filepath.Base(pl.Path) {
			times = append(times, r.At)
		}
	}
	return times
}

// AssertFileEvents checks FileEvents: at most that many creates, and removes.
func (pl *Plugin) AssertFileEvents(from time.Time, creates, removes int) {
	pl.node.tb.Helper()
	if c, r := pl.FileEvents(from); c > creates || r > removes {
		pl.node.Errorf("kubelet sees %d creates and %d removes of the registration socket, want at most %d and %d", c, r, creates, removes)
	}
}
