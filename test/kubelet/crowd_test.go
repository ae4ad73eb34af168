package kubelet_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

const (
	crowd = 11 // an acceptor and ten standbys
	// exitWithin is what I8 promises from SIGTERM to exit.
	exitWithin = time.Second
)

// gather starts a crowd at one driver, the programs as they ship. The last one accepts,
// the others hold copies of the listener.
func gather(t *testing.T) (n *harness.Node, stall *harness.Stall, procs []*harness.Proc) {
	t.Helper()
	n = harness.New(t, bin.Plain())
	stall = n.MeasureStall()
	n.StartKubelet()
	n.StartDriver()
	for range crowd {
		p := n.Start(harness.Ours)
		n.AwaitAcceptor(soon, p)
		procs = append(procs, p)
		if len(procs) == 1 {
			n.AwaitRegistered(soon)
			n.AwaitQuiet(onePair, patient)
		}
	}
	awaitSpares(n, procs[:crowd-1])
	n.AwaitQuiet(onePair, patient)
	n.AssertFileEvents(procs[1].Started, 0, 0)
	return n, stall, procs
}

// exits tells these to end, all at once, and wants each to be quick.
func exits(n *harness.Node, stall *harness.Stall, procs ...*harness.Proc) {
	sent := make([]time.Time, len(procs))
	for i, p := range procs {
		sent[i] = p.SendTerm()
	}
	for i, p := range procs {
		took := p.AwaitTerm(sent[i])
		if took >= exitWithin+stall.Between(sent[i], p.Ended()) {
			n.Errorf("%s: %v from SIGTERM to exit, want under %v", p.Name, took.Round(time.Millisecond), exitWithin)
		}
	}
}

// TestExitFromACrowd: whoever of eleven leaves, alone or with all, is quick, also when
// some are frozen; and kubelet sees nothing of it while somebody stays.
func TestExitFromACrowd(t *testing.T) {
	t.Parallel()
	for name, frozen := range map[string][]int{
		"none is frozen":                   nil,
		"some are frozen":                  {0, 4, 7},
		"the newest spare is frozen":       {crowd - 2},
		"the two newest spares are frozen": {crowd - 2, crowd - 3},
		"half are frozen":                  {1, 3, 5, 7, 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, stall, procs := gather(t)
			began := time.Now()
			// When an heir is frozen, nobody else can know what kubelet said to it.
			announced := 0
			assertNoticed := func(heirFrozen bool) {
				if heirFrozen {
					announced++
				}
				n.AwaitQuiet(onePair, patient)
				n.AwaitRegistered(soon)
				n.AssertFileEvents(began, announced, 0)
				n.AssertOut(began, onePairAtMost*time.Duration(announced), announced)
			}
			var moving, still []*harness.Proc
			for i, p := range procs {
				if slices.Contains(frozen, i) {
					p.Freeze()
					still = append(still, p)
				} else {
					moving = append(moving, p)
				}
			}
			n.Mark("the acceptor leaves")
			last := len(moving) - 1
			exits(n, stall, moving[last])
			n.AwaitAcceptor(soon, moving[last-1])
			n.Mark("a standby leaves")
			exits(n, stall, moving[0])
			moving = moving[1:last]
			assertNoticed(slices.Contains(frozen, crowd-2))

			n.Mark("the new acceptor is killed")
			moving[len(moving)-1].Kill()
			moving = moving[:len(moving)-1]
			n.AwaitAcceptor(soon, moving[len(moving)-1])
			assertNoticed(len(frozen) > 0) // an older one may have been newer to it

			n.Mark("all that move leave at once")
			exits(n, stall, moving...)
			for _, p := range still {
				p.Thaw()
			}
			if len(still) > 0 {
				n.AwaitAcceptor(soon, still...)
				assertNoticed(true)
				exits(n, stall, still...)
			}
			n.AwaitGone(soon)
			n.AssertLeft()
		})
	}
}

// TestFrozenAcceptorInACrowd: somebody takes over from it once it has not answered for
// five seconds, once, and none of them fights when it thaws.
func TestFrozenAcceptorInACrowd(t *testing.T) {
	t.Parallel()
	n, stall, procs := gather(t)
	acceptor, others := procs[crowd-1], procs[:crowd-1]
	acceptor.Freeze()
	began := time.Now()
	n.AwaitAcceptor(patient, others...)
	n.AwaitQuiet(onePair, patient)
	n.AwaitRegistered(soon)
	n.AssertFileEvents(began, 1, 0)
	n.AssertOut(began, onePairAtMost, 1)

	thawed := n.Mark("it thaws")
	acceptor.Thaw()
	n.AwaitAcceptor(soon, others...)
	awaitOneAcceptor(n, procs)
	assertUnnoticed(n, thawed)
	n.Mark("the frozen one can be handed the listener again, and all leave")
	exits(n, stall, procs...)
	n.AwaitGone(soon)
	n.AssertLeft()
}

// awaitOneAcceptor waits until all but one of these hold a copy of the listener.
func awaitOneAcceptor(n *harness.Node, procs []*harness.Proc) {
	var accepts *harness.Proc
	n.Await("one to accept, and the others to hold copies", patient, func() bool {
		accepts = nil
		for _, p := range procs {
			switch accepting := state(p, "Accepting"); {
			case accepting && accepts == nil:
				accepts = p
			case accepting, !state(p, "Spare"):
				return false
			}
		}
		return accepts != nil
	})
}

// TestNewcomerFrozen: a newcomer stands still at some moment of its start, which is
// often one of the handover: it has said hello, is asked whether it is ready, was given
// the listener or has begun to accept. Kubelet finds somebody at any time but while a
// frozen acceptor has not been silent for long enough.
func TestNewcomerFrozen(t *testing.T) {
	t.Parallel()
	seed := seedFromEnv(t)
	for shard := range 3 {
		t.Run(string(rune('a'+shard)), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, uint64(shard)))
			n, _, _, old := registered(t, silent)
			for i := range 4 {
				newcomerFrozen(n, old, i, time.Duration(random.IntN(12))*250*time.Microsecond)
			}
			n.Logf("handed over %d times, not after all %d times, went on %d times", old.Said(gaveAway), old.Said(keptItself), old.Said(wentOn))
			old.Terminate()
			n.AwaitGone(soon)
			n.AssertLeft()
		})
	}
}

// newcomerFrozen freezes a newcomer a moment after it has connected to the acceptor's
// control socket, which is seen in its connections.
func newcomerFrozen(n *harness.Node, old *harness.Proc, i int, after time.Duration) {
	began := n.Mark("newcomer %d, frozen %v after it has dialled", i+1, after)
	newer := n.Start(harness.Ours)
	before := n.Connections(n.Control(old))
	for time.Since(began) < soon { // a poll that is faster than Await
		if n.Connections(n.Control(old)) > before {
			break
		}
	}
	<-time.After(after) // what is tested
	newer.Freeze()
	n.AwaitAcceptor(patient, old)
	n.AwaitQuiet(onePair, patient)
	n.AwaitRegistered(soon)
	n.AssertFileEvents(began, 1, 0) // if it had begun to accept
	n.AssertOut(began, onePairAtMost, 1)

	thawed := n.Mark("it thaws")
	newer.Thaw()
	awaitOneAcceptor(n, []*harness.Proc{old, newer})
	n.AwaitQuiet(onePair, patient)
	n.AwaitRegistered(soon)
	n.AssertFileEvents(thawed, 1, 0)
	ended := n.Mark("it leaves")
	newer.Terminate()
	n.AwaitAcceptor(soon, old)
	n.AwaitQuiet(onePair, patient)
	n.AwaitRegistered(soon)
	n.AssertOut(ended, 0, 0)
	n.AssertFileEvents(ended, 0, 0)
}
