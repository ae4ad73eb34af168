package main

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// overlaps is what the rounds of overlap measured.
type overlaps struct {
	start     []time.Duration // the newcomer's start, to its first answer at the path
	published []time.Duration // its socket at the path, to that answer
	handBack  []time.Duration // the newcomer's SIGTERM, to the first answer of the one before
	standby   []time.Duration // SIGTERM to exit of the one before
	acceptor  []time.Duration // of the newcomer
	alone     []time.Duration // of the last
	never     int             // hand-backs that did not come
}

// overlap measures two instances at a time: a newcomer beside another, and the
// exit of either while the other lives; then that of the other, alone. The
// control is a Go program that has nothing to do at its end: what it takes at
// most is what this machine makes of nothing.
func (b *bench) overlap(tb testing.TB, subjects []subject) {
	for _, s := range subjects {
		b.say("%s: %d overlaps of two instances", s.name, b.rounds)
		p := b.newPlace(tb, s)
		var o overlaps
		var control []time.Duration
		idle := p.AddPlugin("control.example.com")
		for i := range b.rounds {
			b.overlapOnce(p, &o, i%2 == 0)
			driver := idle.StartDriver()
			b.phase(50*time.Millisecond, 100*time.Millisecond)
			control = append(control, driver.Terminate())
		}
		b.times(s, "takeover: newcomer's start to answer", o.start, "")
		b.times(s, "takeover: published to answer", o.published, "")
		never := ""
		if o.never > 0 {
			never = fmt.Sprintf("never (looked %d times %.0f s)", o.never, handLook.Seconds())
			if len(o.handBack) > 0 {
				tb.Errorf("%s handed back %d times, and %d times not within %v", s.name, len(o.handBack), o.never, handLook)
			}
		}
		b.times(s, "hand-back: newest's SIGTERM to answer", o.handBack, never)
		b.times(s, "SIGTERM to exit, alone", o.alone, "")
		b.times(s, "SIGTERM to exit, of a standby", o.standby, "")
		b.times(s, "SIGTERM to exit, of the acceptor", o.acceptor, "")
		b.times(s, "control: the same of a CSI driver, alone", control, "")
	}
}

// overlapOnce is one round: A, then B, then the exit of the one and of the other.
func (b *bench) overlapOnce(p place, o *overlaps, oldLeaves bool) {
	podA := p.accepted()
	b.phase(100*time.Millisecond, 200*time.Millisecond)
	podB := p.start()
	at, ok := p.answersWithin(patience, podB)
	if !ok {
		p.Fatalf("%s: no takeover within %v", p.name, patience)
	}
	o.start = append(o.start, at.Sub(podB.Started))
	if created, ok := p.created(podB.Started); ok {
		o.published = append(o.published, at.Sub(created))
	}
	if p.kind == harness.Ours {
		p.AwaitLease(patience, podB)
	}
	b.phase(200*time.Millisecond, 300*time.Millisecond)
	if oldLeaves {
		o.standby = append(o.standby, podA.Terminate())
		o.alone = append(o.alone, podB.Terminate())
		return
	}
	began := podB.SendTerm()
	if o.never < fruitless {
		if at, ok := p.answersWithin(handLook, podA); ok {
			o.handBack = append(o.handBack, at.Sub(began))
		} else {
			o.never++
		}
	}
	o.acceptor = append(o.acceptor, podB.AwaitTerm(began))
	b.phase(200*time.Millisecond, 300*time.Millisecond)
	o.alone = append(o.alone, podA.Terminate())
}

// created is when the newest socket since from came to the path.
func (p place) created(from time.Time) (at time.Time, ok bool) {
	for _, r := range p.Trace.Since(from, "files") {
		if r.Text == "create "+filepath.Base(p.Path) {
			at, ok = r.At, true
		}
	}
	return at, ok
}

// frozen measures SIGTERM to exit beside an instance that SIGSTOP holds.
func (b *bench) frozen(tb testing.TB, subjects []subject) {
	for _, s := range subjects {
		b.say("%s: %d exits beside a frozen instance", s.name, b.icy)
		p := b.newPlace(tb, s)
		var standby, acceptor []time.Duration
		for i := range b.icy {
			podA := p.accepted()
			podB := p.accepted()
			b.phase(200*time.Millisecond, 300*time.Millisecond)
			leaves, frozen := podA, podB
			if i%2 == 1 {
				leaves, frozen = podB, podA
			}
			frozen.Freeze()
			took := leaves.Terminate()
			if leaves == podA {
				standby = append(standby, took)
			} else {
				acceptor = append(acceptor, took)
			}
			frozen.Kill()
		}
		b.times(s, "SIGTERM to exit, beside a frozen acceptor", standby, "")
		b.times(s, "SIGTERM to exit, beside a frozen standby", acceptor, "")
	}
}
