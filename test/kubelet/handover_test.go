package kubelet_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// What registrars say of a takeover.
const (
	tookOver    = "Took over the registration socket of an older instance"
	wentOn      = "accepting in its place"
	published   = "Published the registration socket"
	notHanded   = "The registration socket is not handed over, publishing another"
	gaveAway    = "Handed the registration socket over"
	noControl   = "No control socket"
	keptItself  = "The registration socket was not handed over, this instance keeps it"
	sameInfo    = "with the same node info: kubelet need not know"
	otherInfo   = "other node info: announcing it again"
	newProcess  = "Another process of the CSI driver answers: announcing it again"
	generations = 10
)

// assertUnnoticed checks that kubelet has seen nothing at all of the registration
// since then, and is at rest.
func assertUnnoticed(n *harness.Node, since time.Time) {
	n.AwaitQuiet(onePair, patient)
	n.AwaitRegistered(soon)
	n.AssertFileEvents(since, 0, 0)
	n.AssertOut(since, 0, 0)
	for _, what := range []string{"validate", "register", "deregister"} {
		if calls := n.Calls(what, since); len(calls) > 0 {
			n.Errorf("kubelet did %s the driver %d times, want not at all", what, len(calls))
		}
	}
}

// team is what a generation consists of: a registrar alone, all at one driver, or a
// whole pod, each driver with the same node info.
type team struct {
	name string
	next func(n *harness.Node) pod
}

var teams = []team{
	{"registrars", func(n *harness.Node) pod { return pod{registrar: n.Start(harness.Ours)} }},
	{"pods", func(n *harness.Node) pod {
		return pod{driver: n.StartDriver(), registrar: n.Start(harness.Ours)}
	}},
}

// leave ends what there is of it, all at once, and kill kills it.
func (p pod) leave() {
	if p.driver != nil {
		p.end()
		return
	}
	p.registrar.Terminate()
}

func (p pod) kill() {
	p.registrar.Kill()
	if p.driver != nil {
		p.driver.Kill()
	}
}

// inTeams runs a scenario that begins with one pod of kubelet's acquaintance.
func inTeams(t *testing.T, run func(t *testing.T, n *harness.Node, tm team, first pod)) {
	t.Helper()
	t.Parallel()
	for _, tm := range teams {
		t.Run(tm.name, func(t *testing.T) {
			t.Parallel()
			n, _, driver, ours := registered(t, silent)
			n.AwaitNamed(soon)
			first := pod{registrar: ours}
			if tm.name == "pods" {
				first.driver = driver
			}
			run(t, n, tm, first)
		})
	}
}

// joins starts one and waits until the listener has been handed to it.
func (tm team) joins(n *harness.Node) pod {
	p := tm.next(n)
	n.AwaitAcceptor(soon, p.registrar)
	p.registrar.AwaitSaid(tookOver, soon)
	return p
}

// TestTenGenerations: ten generations with the same node info, each beside the one
// before, which leaves then. Kubelet sees nothing of it, from the first to the last.
func TestTenGenerations(t *testing.T) {
	inTeams(t, func(_ *testing.T, n *harness.Node, tm team, last pod) {
		began := time.Now()
		for i := range generations {
			n.Mark("generation %d", i+1)
			next := tm.joins(n)
			last.leave()
			last = next
		}
		assertUnnoticed(n, began)
		n.AwaitAcceptor(soon, last.registrar)
		last.registrar.Terminate()
		n.AwaitGone(soon)
		n.AssertLeft()
	})
}

// TestNewestEnds: the newest of two leaves, or is killed, ten times, and the older one
// goes on. Kubelet sees nothing of it.
func TestNewestEnds(t *testing.T) {
	for name, end := range map[string]func(pod){"leaves": pod.leave, "is killed": pod.kill} {
		t.Run(name, func(t *testing.T) {
			inTeams(t, func(_ *testing.T, n *harness.Node, tm team, first pod) {
				began := time.Now()
				for i := range generations {
					n.Mark("generation %d", i+1)
					next := tm.joins(n)
					end(next)
					n.AwaitAcceptor(soon, first.registrar)
				}
				assertUnnoticed(n, began)
				if got := first.registrar.Said(wentOn); got != generations {
					n.Errorf("it said %q %d times, want %d", wentOn, got, generations)
				}
				first.registrar.Terminate()
				n.AwaitGone(soon)
				n.AssertLeft()
			})
		})
	}
}

// TestNewestCrashLoops: the newest dies at any moment of its start, the handover
// included, ten times. Kubelet sees nothing of it.
func TestNewestCrashLoops(t *testing.T) {
	seed := seedFromEnv(t)
	inTeams(t, func(_ *testing.T, n *harness.Node, tm team, first pod) {
		random := rand.New(rand.NewPCG(seed, 6))
		began := time.Now()
		// How long a start takes here.
		newest := tm.joins(n)
		whole := time.Since(newest.registrar.Started)
		newest.kill()
		for i := range generations {
			n.AwaitAcceptor(soon, first.registrar)
			after := whole*6/10 + time.Duration(random.Int64N(int64(whole)/2))
			n.Mark("crash %d, after %v", i+1, after)
			p := tm.next(n)
			<-time.After(time.Until(p.registrar.Started.Add(after))) // what is tested
			p.kill()
		}
		n.AwaitAcceptor(soon, first.registrar)
		assertUnnoticed(n, began)
		n.Logf("a start took %v; of %d crashes %d came after the handover", whole, generations, first.registrar.Said(wentOn)-1)
		first.registrar.Terminate()
		n.AwaitGone(soon)
		n.AssertLeft()
	})
}

// TestMiddleEnds: of five with copies of the listener any may end, also several at a
// time, and one that is left accepts. Only where the acceptor's heir ends with it
// is a new socket announced: nobody left can know what kubelet said to the heir.
func TestMiddleEnds(t *testing.T) {
	t.Parallel()
	seed := seedFromEnv(t)
	random := rand.New(rand.NewPCG(seed, 7))
	n, _, _, ours := registered(t, silent)
	alive := []*harness.Proc{ours}
	began, announced := time.Now(), 0
	for round := range 6 {
		for len(alive) < 5 {
			p := n.Start(harness.Ours)
			n.AwaitAcceptor(soon, p)
			alive = append(alive, p)
		}
		awaitSpares(n, alive[:4])
		n.Mark("round %d", round+1)
		var stay []*harness.Proc
		var left []*harness.Proc
		var sent []time.Time
		for i, p := range alive {
			switch random.IntN(3) {
			case 0:
				if len(stay)+len(alive)-i > 1 {
					p.Kill()
					continue
				}
				stay = append(stay, p)
			case 1:
				if len(stay)+len(alive)-i > 1 {
					left, sent = append(left, p), append(sent, p.SendTerm())
					continue
				}
				stay = append(stay, p)
			default:
				stay = append(stay, p)
			}
		}
		for i, p := range left {
			p.AwaitTerm(sent[i])
		}
		if newest, heir := alive[4], alive[3]; !slices.Contains(stay, newest) && !slices.Contains(stay, heir) {
			announced++
		}
		alive = stay
		n.AwaitAcceptor(soon, alive...)
		n.AwaitQuiet(onePair, patient)
		n.AwaitRegistered(soon)
	}
	n.AssertFileEvents(began, announced, 0)
	n.AssertOut(began, onePairAtMost*time.Duration(announced), announced)
	leave(n, 0, alive...)
	n.AwaitGone(soon)
}

// awaitSpares waits until each of these has a copy of the listener.
func awaitSpares(n *harness.Node, procs []*harness.Proc) {
	for _, p := range procs {
		n.Await(p.Name+" to hold a copy of the listener", soon, func() bool { return state(p, "Spare") })
	}
}

// state is a field of what the registrar believes: its log has that after each step.
func state(p *harness.Proc, field string) bool {
	for _, line := range slices.Backward(p.Lines()) {
		if _, after, ok := strings.Cut(line, `to={`); ok {
			return strings.Contains(after, `"`+field+`":true`)
		}
	}
	return false
}
