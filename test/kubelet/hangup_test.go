package kubelet_test

import (
	"os"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// TestAcceptorHangsUp: the acceptor ends the connection to one that stands by, and lives
// on: it could not tell it in time what kubelet said, as on a node without a processor
// to spare. The other may accept in its place for a moment; but two acceptors do not
// know what kubelet says to each other, so one of them must stand by again.
func TestAcceptorHangsUp(t *testing.T) {
	t.Parallel()
	n, _, _, old := registered(t, silent)
	info := nodeInfoOf(n, old)
	n.CloseControls()
	c, _ := handedOver(n, old, "listener", info)
	fake := n.StartFakeOn(t, c.File, func(f *harness.Fake, c *harness.Control) {
		if _, hello, err := c.Receive(soon); err != nil || hello["wants"] != "spare" {
			return
		}
		_, _ = c.Write(harness.Frame(harness.FrameReady, map[string]any{"nonce": 7}))
		if kind, _, err := c.Receive(soon); err != nil || kind != harness.FrameIsReady {
			return
		}
		f.Listener(func(fd int) { _ = c.SendWith(f.Handover(), fd) })
	})
	if _, err := c.Write(harness.Frame(harness.FrameAccepting, struct{}{})); err != nil {
		n.Fatalf("%v", err)
	}
	old.AwaitSaid(gaveAway, soon)
	began := n.Mark("the fake hangs up, and goes on to accept")
	c.Close()
	answers := func() int { return n.Look().PID }
	n.AwaitQuiet(onePair, patient)
	n.Await("the other to stand by", patient, func() bool {
		for range 20 {
			if answers() == old.PID() {
				return false
			}
		}
		return state(old, "Spare")
	})
	if got := answers(); got != os.Getpid() {
		n.Errorf("process %d answers, want the fake's %d", got, os.Getpid())
	}
	assertUnnoticed(n, began)
	fake.Stop()
	n.AwaitAcceptor(patient, old)
	assertUnnoticed(n, began)
	old.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestFiftyPeersOneAccepts: of fifty that start at once one accepts in the end, and the
// others stand by with copies of its listener.
func TestFiftyPeersOneAccepts(t *testing.T) {
	n := harness.New(t, bin.Plain())
	n.Args = []string{"--v=4"}
	n.StartKubelet()
	n.StartDriver()
	procs := []*harness.Proc{n.Start(harness.Ours)}
	n.AwaitRegistered(soon)
	n.AwaitQuiet(onePair, patient)
	for len(procs) < 50 {
		procs = append(procs, n.Start(harness.Ours))
	}
	for _, p := range procs {
		n.Await(p.Name+" to have had its turn", time.Minute, func() bool { return p.Said("to={") > 0 && !state(p, "Owed") })
	}
	n.AwaitQuiet(onePair, time.Minute)
	awaitOneAcceptor(n, procs)
	n.AwaitRegistered(soon)
	for _, p := range procs {
		p.SendTerm()
	}
	for _, p := range procs {
		p.AwaitExit(patient)
	}
	n.AssertLeft()
}

// TestAnnouncingOneTidiesUp: the last one out takes away what others left that were
// killed, also when it has no control socket itself.
func TestAnnouncingOneTidiesUp(t *testing.T) {
	t.Parallel()
	n, _, _, old := registered(t, silent)
	last := n.Start(harness.Ours, announced.flag())
	assertPublished(n, last)
	old.Kill()
	last.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}
