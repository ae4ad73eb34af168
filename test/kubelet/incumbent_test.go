package kubelet_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// TestIncumbentLosesTheDriver shows the fault that Holdfast is for, and that
// this harness sees it: two incumbents overlap, the old one leaves, and the
// CSINode lacks the driver although the new one lives.
func TestIncumbentLosesTheDriver(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver()
	old := n.Start(harness.Incumbent)
	n.AwaitAcceptor(soon, old)
	n.AwaitRegistered(soon)

	newer := n.Start(harness.Incumbent)
	began := n.AwaitAcceptor(soon, newer).Started
	old.Terminate()
	n.AwaitGone(soon)
	gone := time.Now()
	n.AwaitQuiet(5*time.Second, patient)

	if !newer.Running() {
		t.Error("the new incumbent ended; it should live on, unregistered")
	}
	if n.Registered() {
		t.Error("the driver came back by itself")
	}
	if out := n.CSINode.OutFor(n.Driver, gone, time.Now()); out < 5*time.Second {
		t.Errorf("the CSINode lacked the driver for only %v", out)
	}
	if _, removes := n.FileEvents(began); removes < 2 {
		t.Errorf("kubelet saw %d removes, want that of the new one's start and that of the old one's end", removes)
	}
	n.AssertLeft()
	newer.Kill()
}

// TestIncumbentAlone is the peer's own contract, which the other scenarios with
// an incumbent rely on.
func TestIncumbentAlone(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver("--node-id=one")
	p := n.Start(harness.Incumbent)
	n.AwaitRegistered(soon)
	n.AwaitNodeID("one", soon)
	p.AwaitSaid("registered", soon)
	p.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestIncumbentEndsWhenRefused: exit 1 at Notify(false), the path left behind.
func TestIncumbentEndsWhenRefused(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver("--node-info-failures=1")
	p := n.Start(harness.Incumbent)
	if code := p.AwaitExit(soon); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	n.AssertLeft("hold.example.com-reg.sock")
}

// TestFromIncumbent: the first roll-out. Ours takes over; the incumbent removes
// our socket by name as it leaves, and ours puts it back.
func TestFromIncumbent(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver()
	incumbent := n.Start(harness.Incumbent)
	n.AwaitAcceptor(soon, incumbent)
	n.AwaitRegistered(soon)

	ours := n.Start(harness.Ours)
	n.AwaitAcceptor(soon, ours)
	n.AwaitQuiet(onePair, soon)
	n.AssertFileEvents(ours.Started, 1, 0)
	n.AssertOut(ours.Started, onePairAtMost, 1)

	began := n.Mark("the incumbent leaves")
	incumbent.Terminate()
	n.AwaitAcceptor(soon, ours)
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(soon)
	n.AssertFileEvents(began, 1, 1)
	n.AssertOut(began, onePairAtMost+time.Second, 1)
	ours.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestFromKilledIncumbent: what it left is dead, and replaced.
func TestFromKilledIncumbent(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver()
	incumbent := n.Start(harness.Incumbent)
	n.AwaitRegistered(soon)
	incumbent.Kill()
	ours := n.Start(harness.Ours)
	n.AwaitAcceptor(soon, ours)
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(soon)
	n.AssertFileEvents(ours.Started, 1, 0)
	ours.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestToIncumbent: the roll-back. The incumbent replaces our socket, ours stands
// by, and leaves without touching what is not its own.
func TestToIncumbent(t *testing.T) {
	t.Parallel()
	n, _, _, ours := registered(t, silent)
	incumbent := n.Start(harness.Incumbent)
	n.AwaitAcceptor(soon, incumbent)
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(soon)

	began := n.Mark("ours leaves")
	ours.Terminate()
	n.AwaitQuiet(onePair, soon)
	n.AwaitAcceptor(soon, incumbent)
	n.AssertOut(began, 0, 0)
	n.AssertFileEvents(began, 0, 0)
	incumbent.Terminate()
	n.AwaitGone(soon)
	n.AssertLeftAmong(lease) // the lease may stay: nobody knows whether it was the last
}

// TestBesideALaterIncumbent: one that starts later is left alone while it
// answers; when it leaves, ours heals what it removed, and when it is killed too.
func TestBesideALaterIncumbent(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*harness.Proc){
		"terminated": func(p *harness.Proc) { p.Terminate() },
		"killed":     (*harness.Proc).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _, _, ours := registered(t, silent)
			incumbent := n.Start(harness.Incumbent)
			n.AwaitAcceptor(soon, incumbent)
			n.AwaitQuiet(3*time.Second, soon)
			n.AwaitAcceptor(soon, incumbent) // still: instances do not fight
			n.AssertFileEvents(incumbent.Started, 1, 1)
			n.AwaitRegistered(soon)

			began := n.Mark("the incumbent ends")
			end(incumbent)
			n.AwaitAcceptor(soon, ours)
			n.AwaitQuiet(onePair, soon)
			n.AwaitRegistered(soon)
			n.AssertFileEvents(began, 1, 1)
			ours.Terminate()
			n.AwaitGone(soon)
			n.AssertLeft()
		})
	}
}

// TestSixtyIncumbentsStart: an incumbent removes our socket and then binds; a
// name put there in between would make it fail (8 of 60, measured). Absent is
// only what was absent twice, 10 ms apart: within 8 ms an incumbent must find its
// path free, also on a node so busy that it takes 4 ms from one to the other.
func TestSixtyIncumbentsStart(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartDriver()
	ours := n.Start(harness.Ours)
	failed, slow := 0, 0
	for i := range 60 {
		n.AwaitAcceptor(soon, ours)
		delay := time.Duration(0)
		if i%2 == 1 {
			delay = 4 * time.Millisecond
		}
		incumbent := n.Start(harness.Incumbent, "--bind-delay="+delay.String())
		n.Await("the incumbent to bind or fail", soon, func() bool {
			return incumbent.Said("serving ") > 0 || !incumbent.Running()
		})
		if incumbent.Running() {
			incumbent.Terminate()
			continue
		}
		incumbent.AwaitExit(soon)
		if gap := bindGap(t, incumbent); gap > 8*time.Millisecond {
			slow++ // this machine's doing
			continue
		}
		failed++
	}
	if failed > 0 || slow > 10 {
		n.Errorf("of 60 starts of an incumbent %d failed to bind, %d were too slow to tell", failed, slow)
	}
	n.AwaitAcceptor(soon, ours)
	ours.Terminate()
	n.AssertLeft()
}

// bindGap is how long an incumbent that failed to bind took from remove to bind.
func bindGap(t *testing.T, p *harness.Proc) time.Duration {
	t.Helper()
	for _, line := range p.Lines() {
		if _, rest, ok := strings.Cut(line, "address already in use ("); ok {
			words, _, _ := strings.Cut(rest, " ")
			gap, err := time.ParseDuration(words)
			if err != nil {
				t.Fatal(err)
			}
			return gap
		}
	}
	t.Fatalf("%s failed for another reason: %q", p.Name, p.Lines())
	return 0
}
