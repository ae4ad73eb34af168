package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

const (
	// hammerEvery is how often the hammer strikes. More would be a flood that
	// keeps whoever accepts from answering.
	hammerEvery = time.Millisecond
	// afterwards is how long it goes on after what it is about has happened.
	afterwards = 300 * time.Millisecond
)

// tally is what the hammer met.
type tally struct {
	made, failed int
	reasons      map[string]int
	gap          time.Duration // the longest time between two answers
}

func (t *tally) merge(o tally) {
	t.made += o.made
	t.failed += o.failed
	t.gap = max(t.gap, o.gap)
	for r, n := range o.reasons {
		if t.reasons == nil {
			t.reasons = map[string]int{}
		}
		t.reasons[r] += n
	}
}

func (t *tally) reading() reading {
	v := value(float64(t.failed))
	v.Words = fmt.Sprintf("of %d", t.made)
	if t.failed > 0 {
		v.Words += " (" + strings.Join(slices.Sorted(maps.Keys(t.reasons)), ", ") + ")"
	}
	return v
}

// hammerer connects to the path and calls GetInfo, anew each time.
type hammerer struct {
	stop, stopped chan struct{}

	mu   sync.Mutex
	now  tally
	last time.Time // of the last answer
}

func (p place) hammerer() *hammerer {
	h := &hammerer{stop: make(chan struct{}), stopped: make(chan struct{}), last: time.Now()}
	go func() {
		defer close(h.stopped)
		next := time.NewTicker(hammerEvery)
		defer next.Stop()
		for {
			h.struck(p.Look())
			select {
			case <-next.C:
			case <-h.stop:
				return
			}
		}
	}()
	return h
}

func (h *hammerer) end() { close(h.stop); <-h.stopped }

func (h *hammerer) struck(s harness.Sight) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := time.Now()
	h.now.made++
	if s.Answered() {
		h.now.gap = max(h.now.gap, at.Sub(h.last))
		h.last = at
		return
	}
	h.now.failed++
	if h.now.reasons == nil {
		h.now.reasons = map[string]int{}
	}
	h.now.reasons[why(s.Err)]++
}

func why(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return "no answer"
}

// cut gives the tally since the last cut.
func (h *hammerer) cut() tally {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.now
	t.gap = max(t.gap, time.Since(h.last))
	h.now, h.last = tally{}, time.Now()
	return t
}

// hammer counts the dials that fail (connect, and GetInfo's answer) while a
// newcomer takes over, while the old one leaves then, and, in every second round,
// while the newest leaves instead; each with 300 ms after it.
func (b *bench) hammer(tb testing.TB, subjects []subject) {
	for _, s := range subjects {
		b.say("%s: %d overlaps while a dialler hammers", s.name, b.hammered)
		p := b.newPlace(tb, s)
		var takeover, oldLeaves, handBack tally
		for i := range b.hammered {
			podA := p.accepted()
			h := p.hammerer()
			podB := p.start()
			p.AwaitAcceptor(patience, podB)
			<-time.After(afterwards)
			takeover.merge(h.cut())
			leaves, stays, into := podA, podB, &oldLeaves
			if i%2 == 1 {
				leaves, stays, into = podB, podA, &handBack
			}
			leaves.Terminate()
			p.answersWithin(time.Second, stays)
			<-time.After(afterwards)
			into.merge(h.cut())
			h.end()
			stays.Terminate()
		}
		b.add(s, "dials failed, newcomer takes over", dials, takeover.reading())
		b.add(s, "dials failed, old one leaves", dials, oldLeaves.reading())
		b.add(s, "dials failed, newest leaves", dials, handBack.reading())
		b.gap(s, "longest without answer, newcomer takes over", takeover)
		b.gap(s, "longest without answer, old one leaves", oldLeaves)
		b.gap(s, "longest without answer, newest leaves", handBack)
	}
}

func (b *bench) gap(s subject, name string, t tally) {
	v := value(float64(t.gap) / float64(time.Millisecond))
	if t.gap > time.Second {
		v = words("the whole look")
	}
	b.add(s, name, "ms", v)
}
