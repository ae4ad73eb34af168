package harness

import (
	"maps"
	"sort"
	"sync"
	"time"
)

// Timeline is the CSINode over time. Safe for concurrent use.
type Timeline struct {
	mu     sync.Mutex
	states []csiNodeState // by time
}

type csiNodeState struct {
	at      time.Time
	drivers map[string]string // node ID by driver
}

func (tl *Timeline) add(at time.Time, drivers map[string]string) {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	tl.states = append(tl.states, csiNodeState{at, maps.Clone(drivers)})
	sort.SliceStable(tl.states, func(i, j int) bool { return tl.states[i].at.Before(tl.states[j].at) })
}

// NodeID is the driver's node ID in the CSINode as it is now; false when the
// CSINode does not have the driver.
func (tl *Timeline) NodeID(driver string) (string, bool) {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	if len(tl.states) == 0 {
		return "", false
	}
	id, ok := tl.states[len(tl.states)-1].drivers[driver]
	return id, ok
}

// OutFor is how long the CSINode lacked the driver between two moments. Before
// the first known state the driver counts as missing.
func (tl *Timeline) OutFor(driver string, from, to time.Time) time.Duration {
	var out time.Duration
	tl.spans(driver, from, to, func(begin, end time.Time, in bool) {
		if !in {
			out += end.Sub(begin)
		}
	})
	return out
}

// Pairs is how often the driver left the CSINode and came back between two
// moments: kubelet's unregister and register.
func (tl *Timeline) Pairs(driver string, from, to time.Time) int {
	pairs, was, left := 0, false, false
	tl.spans(driver, from, to, func(_, _ time.Time, in bool) {
		switch {
		case was && !in:
			left = true
		case !was && in && left:
			pairs++
		}
		was = in
	})
	return pairs
}

// spans calls with each stretch of time in which nothing changed.
func (tl *Timeline) spans(driver string, from, to time.Time, call func(begin, end time.Time, in bool)) {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	begin, in := from, false
	for _, s := range tl.states {
		_, now := s.drivers[driver]
		if s.at.After(to) {
			break
		}
		if s.at.After(begin) {
			call(begin, s.at, in)
			begin = s.at
		}
		in = now
	}
	if to.After(begin) {
		call(begin, to, in)
	}
}
