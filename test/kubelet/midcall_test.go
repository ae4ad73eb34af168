package kubelet_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// slowness is a driver's, while the test wants it.
type slowness struct {
	t    *testing.T
	file string
}

func newSlowness(t *testing.T) slowness { return slowness{t, filepath.Join(t.TempDir(), "slow")} }

// flags make a driver slow then; with fail its slow answers are errors.
func (s slowness) flags(fail bool) []string {
	flags := []string{"--node-info-delay=3s", "--node-info-delay-while=" + s.file}
	if fail {
		flags = append(flags, "--node-info-slow-fails")
	}
	return flags
}

func (s slowness) begin() {
	if err := os.WriteFile(s.file, nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// end is for the calls to come: one that is slow stays so.
func (s slowness) end() {
	if err := os.Remove(s.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
}

// inBothOutcomes runs a scenario in which kubelet's NodeGetInfo is answered, and in
// which it is refused.
func inBothOutcomes(t *testing.T, run func(t *testing.T, slow slowness, fail bool)) {
	t.Helper()
	t.Parallel()
	for name, fail := range map[string]bool{"success": false, "refusal": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, newSlowness(t), fail)
		})
	}
}

// between waits until kubelet has called GetInfo and waits for the driver's answer to
// NodeGetInfo. Whoever asks the driver later is answered at once.
func (s slowness) between(n *harness.Node, driver *harness.Proc) {
	driver.AwaitSaid("a slow answer begins", patient)
	s.end()
	n.Mark("kubelet has called GetInfo, and waits for the driver")
	if answered := driver.Said("NodeGetInfo 3"); answered > 0 {
		n.Fatalf("too late: the driver has answered already")
	}
}

// assertLasts wants the driver registered in the end, and still when all is at rest.
func assertLasts(n *harness.Node) {
	n.AwaitRegistered(patient)
	n.AwaitQuiet(2*onePair, patient)
	n.AwaitRegistered(soon)
	n.AwaitNodeID("node", soon)
}

// TestNewcomerBeforeNotify: a newcomer starts while kubelet is between its first
// GetInfo and the answer. Nothing is handed over: it publishes. Kubelet v1.34 never
// tries again after a refusal, unless it sees a new socket (K6).
func TestNewcomerBeforeNotify(t *testing.T) {
	inBothOutcomes(t, func(t *testing.T, slow slowness, fail bool) {
		n := harness.New(t, bin)
		n.StartKubelet()
		slow.begin()
		driver := n.StartDriver(slow.flags(fail)...)
		old := n.Start(harness.Ours)
		slow.between(n, driver)
		newer := n.Start(harness.Ours)
		newer.AwaitSaid(notHanded, soon)
		newer.AwaitSaid("it is not known which node info kubelet has", soon)
		newer.AwaitSaid(published, soon)
		if driver.Said("NodeGetInfo 3") > 0 {
			n.Fatalf("too late: the driver had answered already")
		}
		assertLasts(n)
		n.AwaitAcceptor(soon, newer)
		n.AssertFileEvents(old.Started, 3, 0) // each one's first, and one more if kubelet refused the second
		leave(n, 0, old, newer)
		n.AwaitGone(soon)
	})
}

// TestEndsBeforeNotify: kubelet has restarted, and is between GetInfo and the answer
// when the acceptor goes or another one comes. What was confirmed once is so no longer:
// whoever accepts then has it confirmed anew.
func TestEndsBeforeNotify(t *testing.T) {
	for name, change := range map[string]func(n *harness.Node, standby, acceptor *harness.Proc) []*harness.Proc{
		"the acceptor leaves": func(_ *harness.Node, standby, acceptor *harness.Proc) []*harness.Proc {
			acceptor.Terminate()
			standby.AwaitSaid(wentOn, soon)
			return []*harness.Proc{standby}
		},
		"the acceptor is killed": func(_ *harness.Node, standby, acceptor *harness.Proc) []*harness.Proc {
			acceptor.Kill()
			standby.AwaitSaid(wentOn, soon)
			return []*harness.Proc{standby}
		},
		"a newcomer": func(n *harness.Node, standby, acceptor *harness.Proc) []*harness.Proc {
			newer := n.Start(harness.Ours)
			newer.AwaitSaid(notHanded, soon)
			newer.AwaitSaid("kubelet has not confirmed this listener", soon)
			return []*harness.Proc{standby, acceptor, newer}
		},
		"a newcomer, and both others leave": func(n *harness.Node, standby, acceptor *harness.Proc) []*harness.Proc {
			newer := n.Start(harness.Ours)
			newer.AwaitSaid(notHanded, soon)
			n.AwaitAcceptor(soon, newer)
			acceptor.Terminate()
			standby.Terminate()
			return []*harness.Proc{newer}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBothOutcomes(t, func(t *testing.T, slow slowness, fail bool) {
				n := harness.New(t, bin)
				kubelet := n.StartKubelet()
				driver := n.StartDriver(slow.flags(fail)...)
				standby := n.Start(harness.Ours)
				n.AwaitRegistered(soon)
				n.AwaitQuiet(onePair, patient)
				acceptor := n.Start(harness.Ours)
				n.AwaitAcceptor(soon, acceptor)
				acceptor.AwaitSaid(tookOver, soon)
				awaitSpares(n, []*harness.Proc{standby})

				kubelet.Terminate()
				slow.begin()
				began := n.Mark("kubelet restarts")
				n.StartKubelet()
				slow.between(n, driver)
				alive := change(n, standby, acceptor)
				assertLasts(n)
				n.AwaitAcceptor(soon, alive[len(alive)-1])
				if creates, removes := n.FileEvents(began); creates < 1 || creates > 2 || removes > 0 {
					n.Errorf("kubelet sees %d creates and %d removes, want one, or two if it refused, and none", creates, removes)
				}
				leave(n, 0, alive...)
				n.AwaitGone(soon)
			})
		})
	}
}

// TestKubeletCallsDuringHandovers: kubelet restarts, and calls, at any moment of a
// handover, and of the former acceptor's end; with a driver that fails now and then.
func TestKubeletCallsDuringHandovers(t *testing.T) {
	t.Parallel()
	seed := seedFromEnv(t)
	for name, flags := range map[string][]string{
		"quick driver": nil,
		"slow driver":  {"--node-info-delay=300ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, uint64(len(name))))
			n := harness.New(t, bin)
			kubelet := n.StartKubelet()
			n.StartDriver(flags...)
			last := n.Start(harness.Ours)
			n.AwaitRegistered(soon)
			for range 8 {
				n.AwaitQuiet(onePair, patient)
				kubelet.Kill()
				before, after := time.Duration(random.IntN(150))*time.Millisecond, time.Duration(random.IntN(1200))*time.Millisecond
				n.Mark("kubelet starts %v after a newcomer, the old one ends %v later", before, after)
				var next *harness.Proc
				if random.IntN(2) == 0 {
					next = n.Start(harness.Ours)
					<-time.After(before) // what is tested
					kubelet = n.StartKubelet()
				} else {
					kubelet = n.StartKubelet()
					<-time.After(after) // kubelet acts once a second
					next = n.Start(harness.Ours)
				}
				n.AwaitAcceptor(soon, next)
				if random.IntN(2) == 0 {
					last.Kill()
				} else {
					last.Terminate()
				}
				last = next
				assertLasts(n)
				n.AwaitAcceptor(soon, last)
			}
			last.Terminate()
			n.AwaitGone(soon)
			n.AssertLeft()
		})
	}
}
