package kubelet_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
	"golang.org/x/sys/unix"
)

// assertPublished waits until a newcomer has published, and not taken the listener
// over, and kubelet is content.
func assertPublished(n *harness.Node, newer *harness.Proc) {
	newer.AwaitSaid(published, soon)
	n.AwaitAcceptor(soon, newer)
	n.AwaitQuiet(onePair, patient)
	n.AwaitRegistered(soon)
	n.AssertFileEvents(newer.Started, 1, 0)
	n.AssertOut(newer.Started, onePairAtMost, 1)
	if newer.Said(tookOver) > 0 {
		n.Errorf("%s took the listener over; it should publish", newer.Name)
	}
}

// TestAnnounceOnEitherSide: beside one that hands nothing over, as an older release
// does not, each takeover and each hand-back is announced.
func TestAnnounceOnEitherSide(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][3]mode{
		"the newcomer announces":      {silent, announced, silent},
		"the one before announces":    {announced, silent, announced},
		"all do":                      {announced, announced, announced},
		"the newcomers, and then not": {announced, silent, silent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			n.StartKubelet()
			n.StartDriver()
			var procs []*harness.Proc
			for i, m := range flags {
				p := n.Start(harness.Ours, m.flag())
				procs = append(procs, p)
				if i > 0 && m == silent && flags[i-1] == silent {
					n.AwaitAcceptor(soon, p)
					p.AwaitSaid(tookOver, soon)
					assertUnnoticed(n, p.Started)
					continue
				}
				assertPublished(n, p)
			}
			for i := len(procs) - 1; i > 0; i-- {
				began := n.Mark("the newest leaves")
				procs[i].Terminate()
				// Whoever of the others is the first to see that the path is dead.
				n.AwaitAcceptor(soon, procs[:i]...)
				n.AwaitQuiet(onePair, patient)
				n.AwaitRegistered(soon)
				n.AssertFileEvents(began, 1, 0)
				n.AssertOut(began, onePairAtMost, 1)
				procs = procs[:i]
			}
			procs[0].Terminate()
			n.AwaitGone(soon)
			n.AssertLeft()
		})
	}
}

// fakeTalks are what a newcomer may find at the acceptor's control socket.
var fakeTalks = map[string]func(f *harness.Fake, c *harness.Control){
	"silence": func(*harness.Fake, *harness.Control) {},
	"rubbish": func(_ *harness.Fake, c *harness.Control) {
		_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	},
	"nothing but zeros": func(_ *harness.Fake, c *harness.Control) { _, _ = c.Write(make([]byte, 100_000)) },
	"another major version": func(_ *harness.Fake, c *harness.Control) {
		frame := harness.Frame(harness.FrameReady, map[string]any{"nonce": 1})
		frame[2] = 2
		_, _ = c.Write(frame)
	},
	"a frame without end": func(_ *harness.Fake, c *harness.Control) {
		_, _ = c.Write([]byte{'h', 'f', 1, harness.FrameReady, 0xff, 0xff, 0xff, 0xff, '{'})
	},
	"half a frame": func(_ *harness.Fake, c *harness.Control) {
		_, _ = c.Write(harness.Frame(harness.FrameReady, map[string]any{"nonce": 1})[:12])
	},
	"a hang-up": func(_ *harness.Fake, c *harness.Control) { c.Close() },
	"a refusal": func(_ *harness.Fake, c *harness.Control) {
		_, _ = c.Write(harness.Frame(harness.FramePublish, map[string]any{"reason": "not today", "later": "more"}))
	},
	"frames it does not know, for ever": func(_ *harness.Fake, c *harness.Control) {
		for {
			if _, err := c.Write(harness.Frame(99, map[string]any{"of": "a later release"})); err != nil {
				return
			}
		}
	},
	"a question, and then silence": func(_ *harness.Fake, c *harness.Control) {
		_, _ = c.Write(harness.Frame(harness.FrameReady, map[string]any{"nonce": 1}))
	},
	"a handover without a listener": func(f *harness.Fake, c *harness.Control) {
		_, _ = c.Write(f.Handover())
	},
	"a handover of a pipe": func(f *harness.Fake, c *harness.Control) {
		if r, w, err := os.Pipe(); err == nil {
			defer r.Close()
			defer w.Close()
			_ = c.SendWith(f.Handover(), int(r.Fd()))
		}
	},
	"a handover of a socket that is elsewhere": func(f *harness.Fake, c *harness.Control) {
		dir, err := os.MkdirTemp("", "hf-else")
		if err != nil {
			return
		}
		defer os.RemoveAll(dir)
		l, err := net.Listen("unix", filepath.Join(dir, "sock"))
		if err != nil {
			return
		}
		defer l.Close()
		if raw, err := l.(*net.UnixListener).SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = c.SendWith(f.Handover(), int(fd)) })
		}
	},
	"a control socket that is gone": func(*harness.Fake, *harness.Control) {},
	"a name that leads elsewhere":   func(*harness.Fake, *harness.Control) {},
}

// TestStrangeAcceptor: whatever a newcomer finds at the acceptor's control socket, it
// publishes instead.
func TestStrangeAcceptor(t *testing.T) {
	t.Parallel()
	for name, talk := range fakeTalks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			n.StartKubelet()
			n.StartDriver()
			fake := n.StartFake(t, talk)
			switch name {
			case "a control socket that is gone":
				fake.StopControl()
			case "a name that leads elsewhere":
				fake.ControlName = "../../../" + fake.ControlName
			}
			n.AwaitRegistered(soon)
			n.AwaitQuiet(onePair, patient)
			newer := n.Start(harness.Ours)
			newer.AwaitSaid(notHanded, soon)
			assertPublished(n, newer)
			fake.Stop()
			newer.Terminate()
			n.AwaitGone(soon)
			n.AssertLeft()
		})
	}
}

// TestAcceptorOfAnotherRelease: one that knows the frames, and more, hands its listener
// over. The same fake as above, so that it is not that which makes newcomers publish.
func TestAcceptorOfAnotherRelease(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver()
	accepts := make(chan error, 1)
	fake := n.StartFake(t, func(f *harness.Fake, c *harness.Control) {
		_, hello, err := c.Receive(soon)
		if err != nil || hello["wants"] != "listener" {
			return
		}
		_, _ = c.Write(harness.Frame(99, map[string]any{"of": "a later release"}))
		_, _ = c.Write(harness.Frame(harness.FrameReady, map[string]any{"nonce": 7, "later": "more"}))
		if kind, body, err := c.Receive(soon); err != nil || kind != harness.FrameIsReady || body["nonce"] != json.Number("7") {
			return
		}
		f.Listener(func(fd int) { _ = c.SendWith(f.Handover(), fd) })
		kind, _, err := c.Receive(soon)
		if err == nil && kind != harness.FrameAccepting {
			err = syscall.EBADMSG
		}
		_, _ = c.Write(harness.Frame(harness.FrameYielded, struct{}{}))
		accepts <- err
	})
	n.AwaitRegistered(soon)
	n.AwaitQuiet(onePair, patient)
	newer := n.Start(harness.Ours)
	newer.AwaitSaid(tookOver, soon)
	if err := <-accepts; err != nil {
		n.Errorf("it should say that it accepts: %v", err)
	}
	fake.Stop()
	n.AwaitAcceptor(soon, newer)
	assertUnnoticed(n, newer.Started)
	newer.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestNoControlSocket: something is in its way. It says so, and takeovers from it and
// by it are announced.
func TestNoControlSocket(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		put string // a command that puts $NAME there
	}{
		"a directory": {put: `mkdir "$name"`},
		"a file":      {put: `echo precious >"$name"`},
		"a symlink":   {put: `ln -s /dev/null "$name"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			n.StartKubelet()
			n.StartDriver()
			without := []string{"sh", "-c", `name="$0/.hold.example.com-reg.$(stat -Lc %i /proc/self/ns/mnt).$$.ctl" && ` + c.put + ` && exec "$@"`, n.Registry}
			first := n.Start(harness.Ours)
			n.AwaitRegistered(soon)
			n.AwaitQuiet(onePair, patient)
			second := n.StartUnder(without, harness.Ours)
			second.AwaitSaid(noControl, soon)
			assertPublished(n, second)
			third := n.Start(harness.Ours)
			assertPublished(n, third)
			third.Terminate()
			n.AwaitAcceptor(soon, first, second)
			n.AwaitQuiet(onePair, patient)
			n.AwaitRegistered(soon)
			second.Terminate()
			n.AwaitAcceptor(soon, first)
			n.AwaitQuiet(onePair, patient)
			n.AwaitRegistered(soon)
			first.Terminate()
			n.AwaitGone(soon)
			n.AssertLeft(n.Control(second))
			if name == "a file" {
				if data, err := os.ReadFile(filepath.Join(n.Registry, n.Control(second))); err != nil || strings.TrimSpace(string(data)) != "precious" {
					n.Errorf("what is in the control socket's place was touched: %q, %v", data, err)
				}
			}
		})
	}
}

// TestDescriptorsCannotBePassed: the kernel, or a filter of system calls, does not let
// them through, on either side. The acceptor keeps the listener, and the newcomer
// publishes.
func TestDescriptorsCannotBePassed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		number uint32
		older  bool
	}{
		"not sent":     {unix.SYS_SENDMSG, true},
		"not received": {unix.SYS_RECVMSG, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			n.StartKubelet()
			n.StartDriver()
			launcher := denied(t, c.number, unix.EPERM)
			var old, newer *harness.Proc
			if c.older {
				old = n.StartUnder(launcher, harness.Ours)
			} else {
				old = n.Start(harness.Ours)
			}
			n.AwaitRegistered(soon)
			n.AwaitQuiet(onePair, patient)
			if c.older {
				newer = n.Start(harness.Ours)
			} else {
				newer = n.StartUnder(launcher, harness.Ours)
			}
			newer.AwaitSaid(notHanded, soon)
			assertPublished(n, newer)
			began := time.Now()
			newer.Terminate()
			n.AwaitAcceptor(soon, old)
			n.AwaitQuiet(onePair, patient)
			n.AwaitRegistered(soon)
			n.AssertFileEvents(began, 1, 0)
			old.Terminate()
			n.AwaitGone(soon)
			n.AssertLeft()
		})
	}
}
