package kubelet_test

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// handoversFromEnv is how often the listener changes hands under load: by handover
// HOLDFAST_HANDOVERS times, or 20, and as often by SIGKILL.
func handoversFromEnv(t *testing.T) int {
	t.Helper()
	s := os.Getenv("HOLDFAST_HANDOVERS")
	if s == "" {
		return 20
	}
	handovers, err := strconv.Atoi(s)
	if err != nil || handovers < 1 {
		t.Fatalf("HOLDFAST_HANDOVERS=%s: %v", s, err)
	}
	return handovers
}

// answeredWithin is ten times what issue 5 asks for: a question may wait so long for its
// answer, but for what the machine is to blame for. These tests run side by side, with
// the race detector.
const answeredWithin = 500 * time.Millisecond

// TestAnsweredAllTheTime: a thousand times a second somebody asks who serves the path,
// while the listener changes hands: by handover, by the end of the acceptor, and by its
// death. Nobody is refused, and nobody waits. Not parallel, so that the machine is for
// it; with the program as it ships, since the race detector makes a process slow.
func TestAnsweredAllTheTime(t *testing.T) {
	handovers := handoversFromEnv(t)
	n := harness.New(t, bin.Plain())
	stall := n.MeasureStall()
	n.StartKubelet()
	n.StartDriver()
	// The control: one registrar at another path, with which nothing happens.
	quiet := n.AddPlugin("quiet.example.com")
	quiet.StartDriver()
	bystander := quiet.Start(harness.Ours, "--v=0")
	quiet.AwaitRegistered(soon)
	last := n.Start(harness.Ours)
	n.AwaitRegistered(soon)
	n.AwaitQuiet(onePair, soon)

	began := time.Now()
	asked, control := n.Ask(time.Millisecond), quiet.Ask(5*time.Millisecond)
	for i := range handovers {
		n.Mark("handover %d, and a kill", i+1)
		victim := n.Start(harness.Ours)
		n.AwaitAcceptor(soon, victim)
		awaitSpares(n, []*harness.Proc{last})
		victim.Kill()
		n.AwaitAcceptor(soon, last)

		n.Mark("handover %d", i+1)
		next := n.Start(harness.Ours)
		n.AwaitAcceptor(soon, next)
		awaitSpares(n, []*harness.Proc{last})
		if i%2 == 0 {
			last.Terminate()
			last = next
			continue
		}
		next.Terminate()
		n.AwaitAcceptor(soon, last)
	}
	questions, base := asked.Stop(), control.Stop()
	took := time.Since(began)
	n.Logf("%d questions in %v, %.0f a second; %d to the other", len(questions), took.Round(time.Millisecond), float64(len(questions))/took.Seconds(), len(base))
	assertAnswered(n, stall, questions, base)
	assertUnnoticed(n, began)
	leave(n, 0, bystander, last)
	n.AwaitGone(soon)
}

// assertAnswered checks every question.
func assertAnswered(n *harness.Node, stall *harness.Stall, questions, control []harness.Question) {
	slowest := func(from, to time.Time) (took time.Duration) {
		for _, q := range control {
			if q.To.After(from) && q.From.Before(to) {
				took = max(took, q.Took())
			}
		}
		return took
	}
	worst, wrong := harness.Question{}, 0
	for _, q := range questions {
		if q.Took() > worst.Took() {
			worst = q
		}
		if q.Err == nil && q.Took() <= answeredWithin {
			continue
		}
		machine := max(slowest(q.From, q.To), stall.Between(q.From, q.To))
		if q.Err == nil && q.Took() <= answeredWithin+machine {
			continue
		}
		if wrong++; wrong <= 10 {
			n.Errorf("a question was answered after %v; one to another process took up to %v meanwhile", q, machine)
		}
	}
	if wrong > 10 {
		n.Errorf("and %d more", wrong-10)
	}
	n.Logf("worst %v; of the others %v", worst, slices.MaxFunc(control, func(a, b harness.Question) int { return int(a.Took() - b.Took()) }))
}
