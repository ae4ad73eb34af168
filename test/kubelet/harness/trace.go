package harness

import (
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"
)

// keepRecords bounds a trace's memory; the oldest records go first.
const keepRecords = 50_000

// Record is one thing that was seen.
type Record struct {
	At   time.Time
	Who  string // a process's name, "files", "csinode", "kubelet's CSI handler", "test"
	Text string
}

// Trace is what was seen on one node, in the order of arrival. Safe for
// concurrent use.
type Trace struct {
	mu      sync.Mutex
	began   time.Time
	records []Record
	dropped int
	wake    chan struct{} // closed and replaced with every record
}

func newTrace() *Trace {
	return &Trace{began: time.Now(), wake: make(chan struct{})}
}

func (tr *Trace) add(at time.Time, who, format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if len(tr.records) >= keepRecords {
		tr.dropped += len(tr.records) / 2
		tr.records = append([]Record(nil), tr.records[len(tr.records)/2:]...)
	}
	tr.records = append(tr.records, Record{At: at, Who: who, Text: fmt.Sprintf(format, args...)})
	close(tr.wake)
	tr.wake = make(chan struct{})
}

// changed is closed when something new is seen.
func (tr *Trace) changed() <-chan struct{} {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.wake
}

// Since gives the records of one origin at or after from.
func (tr *Trace) Since(from time.Time, who string) []Record {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var found []Record
	for _, r := range tr.records {
		if r.Who == who && !r.At.Before(from) {
			found = append(found, r)
		}
	}
	return found
}

// last is the time of the newest record of one of these origins.
func (tr *Trace) last(who ...string) time.Time {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for i := len(tr.records) - 1; i >= 0; i-- {
		for _, w := range who {
			if tr.records[i].Who == w {
				return tr.records[i].At
			}
		}
	}
	return tr.began
}

// String is the newest limit records, by time, ready to be read by a person.
func (tr *Trace) String(limit int) string {
	tr.mu.Lock()
	records := append([]Record(nil), tr.records...)
	dropped := tr.dropped
	tr.mu.Unlock()
	sort.SliceStable(records, func(i, j int) bool { return records[i].At.Before(records[j].At) })
	if len(records) > limit {
		dropped += len(records) - limit
		records = records[len(records)-limit:]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "trace (seconds since %s):\n", tr.began.Format(time.RFC3339Nano))
	if dropped > 0 {
		fmt.Fprintf(&b, "… %d older records left out\n", dropped)
	}
	for _, r := range records {
		fmt.Fprintf(&b, "%9.4f  %-12s %s\n", r.At.Sub(tr.began).Seconds(), r.Who, r.Text)
	}
	return b.String()
}
