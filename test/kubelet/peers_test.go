package kubelet_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// hello is a newcomer's first frame. It wants to stand by, or to accept; then with what
// kubelet has as its node info.
func hello(n *harness.Node, wants, nodeInfo string) []byte {
	return harness.Frame(harness.FrameHello, map[string]any{
		"wants": wants, "instance": "fake", "release": "v99", "host": "test", "started": time.Now(),
		"driver": n.Driver, "endpoint": n.Announced(), "versions": []string{"1.0.0"}, "nodeInfo": nodeInfo, "later": "more",
	})
}

// nodeInfoOf is what kubelet has of this acceptor: a standby is told.
func nodeInfoOf(n *harness.Node, p *harness.Proc) (info string) {
	n.Await(p.Name+" to know which node info kubelet has", soon, func() bool {
		c, kubelet := handedOver(n, p, "spare", "")
		c.Close()
		info, _ = kubelet["nodeInfo"].(string)
		return info != ""
	})
	return info
}

// handedOver talks like a newcomer until it has the listener, and gives what the
// acceptor says of kubelet. While another newcomer has its turn it asks again.
func handedOver(n *harness.Node, p *harness.Proc, wants, info string) (c *harness.Control, kubelet map[string]any) {
	var kind byte
	var body map[string]any
	var err error
	n.Await(p.Name+" to ask the fake whether it is ready", soon, func() bool {
		c = n.DialControl(p)
		if _, err = c.Write(hello(n, wants, info)); err != nil {
			n.Fatalf("say hello: %v", err)
		}
		if kind, body, err = c.Receive(soon); err != nil || kind != harness.FrameReady && body["again"] != true {
			n.Fatalf("after hello came kind %d, %v: %v; want to be asked whether it is ready", kind, body, err)
		}
		return kind == harness.FrameReady
	})
	if _, err := c.Write(harness.Frame(harness.FrameIsReady, body)); err != nil {
		n.Fatalf("say that it is ready: %v", err)
	}
	kind, body, err = c.Receive(soon)
	if err != nil || kind != harness.FrameHandover || c.File == nil {
		n.Fatalf("then came kind %d, %v, a listener: %v: %v; want a handover", kind, body, c.File != nil, err)
	}
	kubelet, _ = body["kubelet"].(map[string]any)
	return c, kubelet
}

// TestStrangeNewcomer: whatever comes to the acceptor's control socket, and wherever a
// newcomer stands still or dies, the acceptor goes on, loses no descriptor, and hands
// the listener to the next one that is well.
func TestStrangeNewcomer(t *testing.T) {
	t.Parallel()
	write := func(frame func(n *harness.Node, info string) []byte) func(*harness.Node, *harness.Proc, string) {
		return func(n *harness.Node, old *harness.Proc, info string) { _, _ = n.DialControl(old).Write(frame(n, info)) }
	}
	for name, talk := range map[string]func(n *harness.Node, old *harness.Proc, info string){
		"silence":   func(n *harness.Node, old *harness.Proc, _ string) { n.DialControl(old) },
		"a hang-up": func(n *harness.Node, old *harness.Proc, _ string) { n.DialControl(old).Close() },
		"rubbish":   write(func(*harness.Node, string) []byte { return []byte("GET / HTTP/1.1\r\n\r\n") }),
		"another major version": write(func(n *harness.Node, info string) []byte {
			frame := hello(n, "listener", info)
			frame[2] = 2
			return frame
		}),
		"a frame without end": write(func(*harness.Node, string) []byte {
			return []byte{'h', 'f', 1, harness.FrameHello, 0xff, 0xff, 0xff, 0xff, '{'}
		}),
		"half a frame":              write(func(n *harness.Node, info string) []byte { return hello(n, "listener", info)[:20] }),
		"another frame first":       write(func(*harness.Node, string) []byte { return harness.Frame(harness.FrameAccepting, struct{}{}) }),
		"a wish of a later release": write(func(n *harness.Node, info string) []byte { return hello(n, "the moon", info) }),
		"hello, and silence":        write(func(n *harness.Node, info string) []byte { return hello(n, "listener", info) }),
		"hello, and a hang-up": func(n *harness.Node, old *harness.Proc, info string) {
			c := n.DialControl(old)
			_, _ = c.Write(hello(n, "listener", info))
			c.Close()
		},
		"a wrong answer": func(n *harness.Node, old *harness.Proc, info string) {
			c := n.DialControl(old)
			_, _ = c.Write(hello(n, "listener", info))
			_, _, _ = c.Receive(soon)
			_, _ = c.Write(harness.Frame(harness.FrameIsReady, map[string]any{"nonce": 1}))
		},
		"a spare, and silence": func(n *harness.Node, old *harness.Proc, _ string) { handedOver(n, old, "spare", "") },
		"a spare, and a hang-up": func(n *harness.Node, old *harness.Proc, _ string) {
			c, _ := handedOver(n, old, "spare", "")
			c.Close()
		},
		"a listener, and silence": func(n *harness.Node, old *harness.Proc, info string) { handedOver(n, old, "listener", info) },
		"a listener, and a hang-up": func(n *harness.Node, old *harness.Proc, info string) {
			c, _ := handedOver(n, old, "listener", info)
			c.Close()
		},
		"says that it accepts, and dies": func(n *harness.Node, old *harness.Proc, info string) {
			c, _ := handedOver(n, old, "listener", info)
			_, _ = c.Write(harness.Frame(harness.FrameAccepting, struct{}{}))
			c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _, _, old := registered(t, silent)
			info := nodeInfoOf(n, old)
			n.AwaitQuiet(onePair, patient)
			began, before := time.Now(), old.Descriptors()
			for range 5 {
				talk(n, old, info)
				n.AwaitAcceptor(soon, old)
			}
			assertUnnoticed(n, began)
			newer := n.Start(harness.Ours)
			newer.AwaitSaid(tookOver, soon)
			n.AwaitAcceptor(soon, newer)
			newer.Terminate()
			n.AwaitAcceptor(soon, old)
			n.CloseControls()
			n.Await("it to close what it has opened", soon, func() bool { return old.Descriptors() <= before+1 }) // a copy of its own, which the first handover makes
			assertUnnoticed(n, began)
			old.Terminate()
			n.AwaitGone(soon)
			n.AssertLeft()
		})
	}
}

// TestNewcomerFrozenOnceItAccepts: a newcomer has said that it accepts, and does not.
// That reads as a frozen acceptor: after five seconds the former one publishes.
func TestNewcomerFrozenOnceItAccepts(t *testing.T) {
	t.Parallel()
	n, _, _, old := registered(t, silent)
	info := nodeInfoOf(n, old)
	began := n.Mark("the fake accepts, as it says")
	c, _ := handedOver(n, old, "listener", info)
	if _, err := c.Write(harness.Frame(harness.FrameAccepting, struct{}{})); err != nil {
		n.Fatalf("%v", err)
	}
	old.AwaitSaid(gaveAway, soon)
	n.AwaitAcceptor(patient, old)
	n.AwaitQuiet(onePair, patient)
	n.AwaitRegistered(soon)
	n.AssertFileEvents(began, 1, 0)
	n.AssertOut(began, onePairAtMost, 1)
	old.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestFiftyPeersAtOnce: fifty start at once, when one is registered and when none is;
// one accepts, and all leave at once. While a hundred others keep the control socket
// busy, a newcomer publishes. Not parallel, for the sake of the others.
func TestFiftyPeersAtOnce(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("one is there before: %v", first), func(t *testing.T) {
			n := harness.New(t, bin.Plain())
			n.Args = []string{"--v=4"}
			n.StartKubelet()
			n.StartDriver()
			var procs []*harness.Proc
			if first {
				procs = append(procs, n.Start(harness.Ours))
				n.AwaitRegistered(soon)
				n.AwaitQuiet(onePair, patient)
			}
			for len(procs) < 50 {
				procs = append(procs, n.Start(harness.Ours))
			}
			for _, p := range procs {
				n.Await(p.Name+" to have had its turn", time.Minute, func() bool {
					return p.Said(tookOver)+p.Said(published)+p.Said("Another instance serves") > 0 && !state(p, "Owed")
				})
			}
			n.AwaitAcceptor(soon, procs...)
			n.AwaitRegistered(patient)
			n.AwaitQuiet(onePair, time.Minute)
			n.AwaitRegistered(soon)
			creates, removes := n.FileEvents(procs[0].Started)
			n.Logf("kubelet saw %d creates and %d removes of fifty starts", creates, removes)
			if removes > 0 || creates > 2*len(procs) { // each owes one start (I6), and kubelet may refuse some
				n.Errorf("kubelet saw %d creates and %d removes", creates, removes)
			}
			for _, p := range procs {
				p.SendTerm()
			}
			for _, p := range procs {
				if code := p.AwaitExit(patient); code != 0 { // not Terminate: fifty at once on a busy machine
					n.Errorf("%s: exit %d, want 0", p.Name, code)
				}
			}
			n.AwaitGone(soon)
			n.AssertLeft()
		})
	}
	t.Run("the control socket is busy", func(t *testing.T) {
		t.Parallel()
		n, _, _, old := registered(t, silent)
		began, before := time.Now(), old.Descriptors()
		// Those that stand by keep their places, others have a second each.
		for range 100 {
			c := n.DialControl(old)
			_, _ = c.Write(hello(n, "spare", ""))
			if kind, body, err := c.Receive(soon); err == nil && kind == harness.FrameReady {
				_, _ = c.Write(harness.Frame(harness.FrameIsReady, body))
				_, _, _ = c.Receive(soon)
				_, _ = c.Write(harness.Frame(harness.FrameAccepting, struct{}{}))
			}
		}
		assertUnnoticed(n, began)
		newer := n.Start(harness.Ours)
		newer.AwaitSaid(notHanded, soon)
		assertPublished(n, newer)
		n.CloseControls()
		n.Await("it to close what it has opened", soon, func() bool { return old.Descriptors() <= before+3 }) // it stands by
		leave(n, 0, old, newer)
		n.AwaitGone(soon)
	})
}

// TestIncumbentBetween: two share a listener when an incumbent comes, in whose place
// nobody goes while it answers; when it has gone they share a listener again.
func TestIncumbentBetween(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*harness.Proc){
		"terminated": func(p *harness.Proc) { p.Terminate() },
		"killed":     (*harness.Proc).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _, _, old, newer := overlap(t, silent)
			incumbent := n.Start(harness.Incumbent)
			n.AwaitAcceptor(soon, incumbent)
			n.AwaitQuiet(onePair, patient)
			n.AwaitRegistered(soon)
			n.AwaitAcceptor(soon, incumbent)
			n.AssertFileEvents(incumbent.Started, 1, 1)

			n.Mark("one of ours comes: it publishes")
			third := n.Start(harness.Ours)
			assertPublished(n, third)
			began := n.Mark("the incumbent ends")
			end(incumbent)
			ours := []*harness.Proc{old, newer, third}
			n.AwaitAcceptor(soon, ours...)
			n.AwaitQuiet(onePair, patient)
			n.AwaitRegistered(soon)
			n.AssertFileEvents(began, len(ours), 1)
			awaitOneAcceptor(n, ours)

			shared := n.Mark("a handover, and the end of all others")
			last := n.Start(harness.Ours)
			last.AwaitSaid(tookOver, soon)
			n.AwaitAcceptor(soon, last)
			for _, p := range ours {
				p.Terminate()
			}
			assertUnnoticed(n, shared)
			last.Terminate()
			n.AwaitGone(soon)
			n.AssertLeft()
		})
	}
}
