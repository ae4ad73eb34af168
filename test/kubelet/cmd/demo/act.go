package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// How long is looked at most, and at least where something is said to last.
const (
	longLook  = 5 * time.Second
	shortLook = 3 * time.Second
	// kubelet's reconciler runs once a second: after two it has acted, if it will.
	twoTicks = 2200 * time.Millisecond
)

// The steps whose outcome is compared, in the order of the summary.
const (
	overlap = iota
	oldLeaves
	newLeaves
	removed
	killed
	steps
)

// outcome is what was measured from the beginning of a step to its end.
type outcome struct {
	out        time.Duration // the CSINode lacked the driver
	in         bool          // the CSINode has the driver at the end
	unanswered time.Duration // nobody answered at the path
	answers    bool          // the one who should answers at the end
}

// act is one run of the story with one kind of registrar.
type act struct {
	who      string
	kind     harness.Kind
	outcomes [steps]outcome
	s        *stage
}

// play tells the story; a.outcomes is what came out.
func (a *act) play(tb testing.TB, bin harness.Binaries) {
	a.s = newStage(tb, bin)
	s := a.s
	s.begin("pod A's registrar starts; nobody else is there")
	podA := s.start(a.kind, "pod A")
	a.registered(podA, s.step)
	a.end(podA)

	s.begin("pod B's registrar starts beside it, as when pods overlap in a rolling update")
	podB := s.start(a.kind, "pod B")
	a.registered(podB, s.step)
	a.outcomes[overlap] = a.end(podB)

	s.begin("pod A, the old one, is told to end (SIGTERM); pod B lives")
	sent := podA.SendTerm()
	a.look(longLook)
	a.ended("pod A", podA.AwaitTerm(sent))
	a.outcomes[oldLeaves] = a.end(podB)

	podC := a.another("pod C")
	s.begin("pod C, the newest, is told to end (SIGTERM); pod B lives")
	sent = podC.SendTerm()
	a.settle(podB, s.step)
	a.ended("pod C", podC.AwaitTerm(sent))
	a.outcomes[newLeaves] = a.end(podB)

	accepts := a.recover(podB, "pod D")
	s.begin("somebody removes the socket; its owner lives")
	s.unlink(tb)
	a.settle(accepts, s.step)
	a.outcomes[removed] = a.end(accepts)

	podE := a.another("pod E")
	s.begin("pod E, the newest, is killed (SIGKILL); others live")
	podE.Kill()
	a.settle(podB, s.step)
	a.outcomes[killed] = a.end(podB)
}

// another starts one more pod's registrar, and waits until it is registered.
func (a *act) another(pod string) *harness.Proc {
	a.s.begin("%s's registrar starts", pod)
	p := a.s.start(a.kind, pod)
	a.registered(p, a.s.step)
	return p
}

// recover gives who answers at the path; if nobody does, a new pod.
func (a *act) recover(p *harness.Proc, pod string) *harness.Proc {
	if a.s.answers(p) {
		return p
	}
	return a.another(pod)
}

// registered waits until p answers and kubelet has registered what came since from.
func (a *act) registered(p *harness.Proc, from time.Time) {
	s := a.s
	s.Await("it to answer at the path", 10*time.Second, func() bool { return s.answers(p) })
	s.Await("kubelet to register the driver", 10*time.Second, func() bool { return a.done(from) })
	a.lookOn(from)
}

// done reports whether kubelet has registered the driver, and has no new socket to
// register since from.
func (a *act) done(from time.Time) bool {
	creates, _ := a.s.FileEvents(from)
	return a.s.Registered() && (creates == 0 || len(a.s.Calls("register", from)) > 0)
}

// lookOn looks for as long as kubelet would need to do something, where there is
// nothing for it to do.
func (a *act) lookOn(from time.Time) {
	if creates, _ := a.s.FileEvents(from); creates == 0 {
		a.look(twoTicks)
	}
}

// settle looks until p answers and kubelet has registered what came since from. If
// that does not come it looks for as long as a look takes, and where p answers
// for as long as kubelet may need for it.
func (a *act) settle(p *harness.Proc, from time.Time) {
	s := a.s
	if s.Try(shortLook, func() bool { return s.answers(p) && a.done(from) }) {
		a.lookOn(from)
		return
	}
	if s.answers(p) {
		a.look(twoTicks)
	}
}

// look lets this time pass.
func (a *act) look(d time.Duration) {
	a.s.Try(d, func() bool { return false })
}

// ended says how long a registrar took to end.
func (a *act) ended(pod string, took time.Duration) {
	a.s.catchUp()
	fmt.Printf("    %s's registrar took %d ms from SIGTERM to exit\n", pod, took.Milliseconds())
}

// end closes a step: what came of it, with bars, and whether p answers as it
// should.
func (a *act) end(p *harness.Proc) outcome {
	s := a.s
	s.catchUp()
	now := time.Now()
	o := outcome{out: s.CSINode.OutFor(s.Driver, s.step, now), answers: s.answers(p) && p.Running()}
	_, o.in = s.CSINode.NodeID(s.Driver)
	sights := s.since(s.step)
	for i, x := range sights {
		if x.pid == 0 {
			o.unanswered += span(sights, i, s.step, now)
		}
	}
	answered := func(from, to time.Time) bool {
		for i, x := range sights {
			if x.pid == 0 && x.at.Before(to) && (i+1 == len(sights) || sights[i+1].at.After(from)) {
				return false
			}
		}
		return true
	}
	has := func(from, to time.Time) bool { return s.CSINode.OutFor(s.Driver, from, to) == 0 }
	fmt.Printf("    path     %s nobody answered for %s\n", bar(s.step, now, answered), o.pathWords())
	fmt.Printf("    CSINode  %s lacked the driver for %s\n", bar(s.step, now, has), o.nodeWords())
	return o
}

// span is how long sight i lasted within a stretch of time.
func span(sights []sight, i int, from, to time.Time) time.Duration {
	begin, end := sights[i].at, to
	if begin.Before(from) {
		begin = from
	}
	if i+1 < len(sights) {
		end = sights[i+1].at
	}
	return max(0, end.Sub(begin))
}

// cell is the time that one character of a bar stands for.
const cell = 100 * time.Millisecond

// bar draws a stretch of time: full where all was well in the whole of a cell.
func bar(from, to time.Time, well func(from, to time.Time) bool) string {
	var b strings.Builder
	for at := from; at.Before(to); at = at.Add(cell) {
		end := at.Add(cell)
		if end.After(to) {
			end = to
		}
		if well(at, end) {
			b.WriteString(green("█"))
		} else {
			b.WriteString(red("·"))
		}
	}
	return b.String()
}

func (o outcome) pathWords() string {
	words := fmt.Sprintf("%d ms", o.unanswered.Milliseconds())
	if !o.answers {
		words += ", and nobody does"
	}
	return words
}

func (o outcome) nodeWords() string {
	words := fmt.Sprintf("%d ms", o.out.Milliseconds())
	if !o.in {
		words += ", and still does"
	}
	return words
}

// unlink removes the registration socket, as an incumbent's exit does, or a
// person.
func (s *stage) unlink(tb testing.TB) {
	if err := removeSocket(s.Path); err != nil {
		tb.Fatal(err)
	}
}
