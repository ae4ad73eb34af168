package kit

import (
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
)

// Change is a moment at which a driver came into or left the CSINode, or changed
// its node ID there.
type Change struct {
	At      time.Time
	Present bool
	NodeID  string
}

// Membership is the history of one driver in the CSINode, as a watch told it.
// Safe for concurrent use.
type Membership struct {
	driver string
	trace  *Trace
	mu     sync.Mutex
	all    []Change
}

func (m *Membership) see(node *storagev1.CSINode) {
	var now Change
	for _, d := range node.Spec.Drivers {
		if d.Name == m.driver {
			now.Present, now.NodeID = true, d.NodeID
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var last Change
	if len(m.all) > 0 {
		last = m.all[len(m.all)-1]
	}
	if now.Present == last.Present && now.NodeID == last.NodeID {
		return
	}
	if now.Present {
		now.At = m.trace.Add("CSINode", "has %s, node ID %s", m.driver, now.NodeID)
	} else {
		now.At = m.trace.Add("CSINode", "has NOT %s", m.driver)
	}
	m.all = append(m.all, now)
}

// Changes is the whole history.
func (m *Membership) Changes() []Change {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.all)
}

// Last is the last change, zero if the driver was never there.
func (m *Membership) Last() Change {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.all) == 0 {
		return Change{}
	}
	return m.all[len(m.all)-1]
}

// Missing is for how long, and how often, the driver was not there from a time
// until now.
func (m *Membership) Missing(since time.Time) (total time.Duration, times int) {
	m.mu.Lock()
	all := slices.Clone(m.all)
	m.mu.Unlock()
	present, from := false, since
	for _, c := range append(all, Change{At: time.Now(), Present: true}) {
		if c.At.Before(since) {
			present = c.Present
			continue
		}
		if !present && c.Present && c.At.After(from) {
			total += c.At.Sub(from)
			times++
		}
		if present && !c.Present {
			from = c.At
		}
		present = c.Present
	}
	return total, times
}
