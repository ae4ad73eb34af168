package harness

import (
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"
)

// keepRecords bounds what a trace keeps of one origin; the oldest go first.
const keepRecords = 20_000

// Record is one thing that was seen.
type Record struct {
	At   time.Time
	Who  string // a process's name, "files", "csinode", "csi" for kubelet's CSI handler, or "test"
	Text string
}

// Trace is what was seen on one node. Safe for concurrent use.
type Trace struct {
	mu      sync.Mutex
	began   time.Time
	byWho   map[string][]Record // in the order of arrival
	dropped int
	wake    chan struct{} // closed and replaced with every record
}

func newTrace() *Trace {
	return &Trace{began: time.Now(), byWho: map[string][]Record{}, wake: make(chan struct{})}
}

func (tr *Trace) add(at time.Time, who, format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	records := tr.byWho[who]
	if len(records) >= keepRecords {
		tr.dropped += len(records) / 2
		records = append([]Record(nil), records[len(records)/2:]...)
	}
	tr.byWho[who] = append(records, Record{At: at, Who: who, Text: fmt.Sprintf(format, args...)})
	close(tr.wake)
	tr.wake = make(chan struct{})
}

// forget lets go of the records, when nobody will want them any more.
func (tr *Trace) forget() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	clear(tr.byWho)
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
	for _, r := range tr.byWho[who] {
		if !r.At.Before(from) {
			found = append(found, r)
		}
	}
	return found
}

// last is the time of the newest record of these origins, the trace's beginning
// if there is none.
func (tr *Trace) last(who ...string) time.Time {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	last := tr.began
	for _, w := range who {
		if records := tr.byWho[w]; len(records) > 0 && records[len(records)-1].At.After(last) {
			last = records[len(records)-1].At
		}
	}
	return last
}

// String is the newest limit records, by time, ready to be read by a person.
func (tr *Trace) String(limit int) string {
	tr.mu.Lock()
	var records []Record
	for _, some := range tr.byWho {
		records = append(records, some...)
	}
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
