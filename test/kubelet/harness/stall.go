package harness

import (
	"sync"
	"time"
)

const (
	stallTick = time.Millisecond
	// stallFrom is how late a tick must be to count.
	stallFrom = 2 * time.Millisecond
)

// Stall is what this machine makes of nothing: a goroutine that wants to run every
// millisecond, and takes note when it does not. Safe for concurrent use.
type Stall struct {
	mu   sync.Mutex
	late []lateness
}

type lateness struct {
	at time.Time
	by time.Duration
}

// MeasureStall measures until the test ends.
func (n *Node) MeasureStall() *Stall {
	n.tb.Helper()
	s := &Stall{}
	stop := make(chan struct{})
	var running sync.WaitGroup
	n.tb.Cleanup(func() {
		close(stop)
		running.Wait()
	})
	running.Go(func() { s.run(stop) })
	return s
}

func (s *Stall) run(stop <-chan struct{}) {
	tick := time.NewTimer(stallTick)
	defer tick.Stop()
	for {
		due := time.Now().Add(stallTick)
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		now := time.Now()
		if late := now.Sub(due); late >= stallFrom {
			s.mu.Lock()
			s.late = append(s.late, lateness{now, late})
			s.mu.Unlock()
		}
		tick.Reset(stallTick)
	}
}

// Between is for how long the machine stood still between two moments, in all.
func (s *Stall) Between(from, to time.Time) (sum time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.late {
		if begin := l.at.Add(-l.by); l.at.After(from) && begin.Before(to) {
			sum += l.by
		}
	}
	return sum
}
