package kubelet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// overlap adds a second registrar of ours to a registered first one and waits
// until it has taken over and kubelet is at rest. It checks the takeover.
func overlap(t *testing.T, m mode) (n *harness.Node, kubelet, driver, old, newer *harness.Proc) {
	t.Helper()
	n, kubelet, driver, old = registered(t, m)
	newer = n.Start(harness.Ours)
	n.AwaitAcceptor(soon, newer)
	n.AwaitQuiet(onePair, soon)
	m.assertTakeover(n, newer.Started)
	if !n.Registered() {
		n.Fatalf("not registered after the takeover")
	}
	return n, kubelet, driver, old, newer
}

// TestOverlapOldLeaves: a rolling update. After the old one's exit the CSINode
// never lacks the driver, and kubelet sees nothing.
func TestOverlapOldLeaves(t *testing.T) { inBothModes(t, overlapOldLeaves) }

func overlapOldLeaves(t *testing.T, m mode) {
	n, _, _, old, newer := overlap(t, m)
	began := n.Mark("the old one leaves")
	old.Terminate()
	n.AwaitQuiet(onePair, soon)
	n.AssertOut(began, 0, 0)
	n.AssertFileEvents(began, 0, 0)
	n.AwaitAcceptor(soon, newer)
	newer.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestOverlapNewLeaves: a hand-back costs nothing, or where takeovers are announced
// at most one unregister and register, and kubelet sees no remove.
func TestOverlapNewLeaves(t *testing.T) { inBothModes(t, overlapNewLeaves) }

func overlapNewLeaves(t *testing.T, m mode) {
	n, _, _, old, newer := overlap(t, m)
	began := n.Mark("the new one leaves")
	newer.Terminate()
	n.AwaitAcceptor(soon, old)
	n.AwaitQuiet(onePair, soon)
	m.assertTakeover(n, began)
	n.AwaitRegistered(soon)
	old.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestOverlapOldLeavesAtOnce: the old one leaves in the middle of kubelet's work
// on the takeover, as it does when both containers are quick.
func TestOverlapOldLeavesAtOnce(t *testing.T) { inBothModes(t, overlapOldLeavesAtOnce) }

func overlapOldLeavesAtOnce(t *testing.T, m mode) {
	n, _, _, old := registered(t, m)
	newer := n.Start(harness.Ours)
	n.AwaitAcceptor(soon, newer)
	old.Terminate()
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(soon)
	m.assertTakeover(n, newer.Started)
	newer.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestTakeoverRefusesNoDial: whoever dials the path while a newcomer takes over
// reaches somebody.
func TestTakeoverRefusesNoDial(t *testing.T) { inBothModes(t, takeoverRefusesNoDial) }

func takeoverRefusesNoDial(t *testing.T, m mode) {
	n, _, _, old := registered(t, m)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	dials := harness.DialConstantly(ctx, n.Path)
	newer := n.Start(harness.Ours)
	n.AwaitAcceptor(soon, newer)
	old.Terminate()
	n.AwaitQuiet(500*time.Millisecond, soon)
	stop()
	seen := <-dials
	t.Logf("%d dials, failed: %v", seen.Made, seen.Failed)
	if len(seen.Failed) > 0 {
		t.Errorf("of %d dials failed: %v", seen.Made, seen.Failed)
	}
	newer.Terminate()
	n.AssertLeft()
}

// TestBothLeaveAtOnce: nothing is left, whoever wins.
func TestBothLeaveAtOnce(t *testing.T) { inBothModes(t, bothLeaveAtOnce) }

func bothLeaveAtOnce(t *testing.T, m mode) {
	n, _, _, old, newer := overlap(t, m)
	for range 10 {
		leave(n, 0, old, newer)
		old, newer = n.Start(harness.Ours), n.Start(harness.Ours)
		n.AwaitAcceptor(soon, old, newer)
		n.AwaitLease(soon, old, newer)
	}
	leave(n, 0, old, newer)
	n.AwaitGone(soon)
}

// leave terminates these, gap apart, and checks that nothing is left.
func leave(n *harness.Node, gap time.Duration, procs ...*harness.Proc) {
	sent := make([]time.Time, len(procs))
	for i, p := range procs {
		if i > 0 && gap > 0 {
			<-time.After(gap) // what is tested, not a wait for anything
		}
		sent[i] = p.SendTerm()
	}
	for i, p := range procs {
		p.AwaitTerm(sent[i])
	}
	n.AssertLeft()
}

// TestLeaversApart: two leave 0 to 300 ms apart, the acceptor first and last. A
// leaver waits 250 ms for the lease, and once more at its end: without that a
// peer which leaves just then sees an answer, goes, and leaves a dead socket (14
// of 20, measured). Hence the many steps about 250 ms.
func TestLeaversApart(t *testing.T) { inBothModes(t, leaversApart) }

func leaversApart(t *testing.T, m mode) {
	coarse := []int{0, 1, 5, 10, 20, 50, 80, 100, 120, 150, 180, 200, 220, 280, 300}
	var fine []int
	for ms := 235; ms <= 275; ms++ {
		fine = append(fine, ms)
	}
	for name, gaps := range map[string][]int{"coarse": coarse, "fine 1": fine, "fine 2": fine} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			n.Args = []string{m.flag()}
			n.StartDriver()
			for _, ms := range gaps {
				if t.Failed() {
					return // the trace ends with it
				}
				if ms < 235 || ms > 275 {
					leaveApart(n, ms, false)
				}
				leaveApart(n, ms, true)
			}
		})
	}
}

// leaveApart starts two and lets them leave.
func leaveApart(n *harness.Node, ms int, acceptorFirst bool) {
	standby := n.Start(harness.Ours)
	n.AwaitAcceptor(soon, standby)
	acceptor := n.Start(harness.Ours)
	n.AwaitAcceptor(soon, acceptor)
	n.Mark("%d ms apart, acceptor first: %v", ms, acceptorFirst)
	first, second := standby, acceptor
	if acceptorFirst {
		first, second = acceptor, standby
	}
	leave(n, time.Duration(ms)*time.Millisecond, first, second)
}

// TestFiveLeaveInAnyOrder: five start at once, and leave in any order and any
// rhythm; nothing is left.
func TestFiveLeaveInAnyOrder(t *testing.T) { inBothModes(t, fiveLeaveInAnyOrder) }

func fiveLeaveInAnyOrder(t *testing.T, m mode) {
	seed := seedFromEnv(t)
	random := rand.New(rand.NewPCG(seed, 5))
	n := harness.New(t, bin)
	n.Args = []string{m.flag()}
	n.StartKubelet()
	n.StartDriver()
	for round := range 6 {
		var five []*harness.Proc
		for range 5 {
			five = append(five, n.Start(harness.Ours))
		}
		n.AwaitLease(soon, five...)
		n.AwaitAcceptor(soon, five...)
		n.AwaitRegistered(patient)
		random.Shuffle(len(five), func(i, j int) { five[i], five[j] = five[j], five[i] })
		gap := time.Duration(random.IntN(3)*40) * time.Millisecond
		n.Mark("round %d: they leave %v apart: %s", round, gap, names(five))
		leave(n, gap, five...)
		n.AwaitGone(soon)
	}
}

func names(procs []*harness.Proc) string {
	var s []string
	for _, p := range procs {
		s = append(s, p.Name)
	}
	return fmt.Sprint(s)
}
