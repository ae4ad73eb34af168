package main

import (
	"os"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

const (
	// patience is how long anything that must come is waited for.
	patience = 10 * time.Second
	// healLook and handLook are how long what may never come is waited for; after
	// fruitless looks without result it is not tried again.
	healLook, handLook = 5 * time.Second, 3 * time.Second
	fruitless          = 3
)

// place is a node with a driver, for one subject.
type place struct {
	*harness.Node
	subject
}

// newPlace is a node with a driver that serves.
func (b *bench) newPlace(tb testing.TB, s subject) place {
	n := harness.New(tb, b.bin)
	n.StartDriver()
	return place{n, s}
}

// start starts the subject, with the verbosity it has when nobody asks for more.
func (p place) start(args ...string) *harness.Proc {
	if p.kind == harness.Ours {
		args = append([]string{"-v=0"}, args...) // the harness wants more
	}
	return p.Start(p.kind, args...)
}

// accepted starts the subject and waits until it answers at the path, with all
// that belongs to it.
func (p place) accepted(args ...string) *harness.Proc {
	proc := p.start(args...)
	p.AwaitAcceptor(patience, proc)
	if p.kind == harness.Ours {
		p.AwaitLease(patience, proc)
	}
	return proc
}

// answersWithin waits until the process answers at the path. It looks when the
// directory changes, so that the waiting costs the registrar nothing.
func (p place) answersWithin(limit time.Duration, proc *harness.Proc) (at time.Time, ok bool) {
	ok = p.Try(limit, func() bool {
		if _, err := os.Lstat(p.Path); err != nil {
			return !proc.Running()
		}
		return p.Accepts(proc) || !proc.Running()
	})
	return time.Now(), ok && proc.Running()
}

// heal measures from the removal of the socket by somebody else, of a lone
// instance, to the first GetInfo that it answers at the path.
func (b *bench) heal(tb testing.TB, subjects []subject) {
	for _, s := range subjects {
		b.say("%s: the socket is removed %d times", s.name, b.heals)
		p := b.newPlace(tb, s)
		proc := p.accepted()
		var took []time.Duration
		never, ended := 0, 0
		for range b.heals {
			b.phase(0, 100*time.Millisecond)
			began := time.Now()
			if err := os.Remove(p.Path); err != nil {
				tb.Fatal(err)
			}
			at, ok := p.answersWithin(healLook, proc)
			if ok {
				took = append(took, at.Sub(began))
				continue
			}
			if never++; !proc.Running() {
				ended++
				proc.AwaitExit(patience)
			} else {
				proc.Kill()
			}
			if never == fruitless {
				break
			}
			proc = p.accepted()
		}
		none := ""
		if len(took) == 0 {
			none = words("never (looked %d times %.0f s)", never, healLook.Seconds()).Words
			if ended == never {
				none = words("it ends instead").Words
			}
		} else if never > 0 {
			tb.Errorf("%s healed %d times, and %d times not within %v", s.name, len(took), never, healLook)
		}
		b.times(s, "heal", took, none, 0.99)
		if proc.Running() {
			proc.Kill()
		}
	}
}
