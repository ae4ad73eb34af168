package kit

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Record is one thing that happened.
type Record struct {
	At   time.Time
	Who  string
	Text string
}

// Trace is all that happened, in order of time. Safe for concurrent use.
type Trace struct {
	began time.Time
	mu    sync.Mutex
	all   []Record
}

// Add adds a record and returns its time.
func (t *Trace) Add(who, format string, args ...any) time.Time {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, Record{now, who, fmt.Sprintf(format, args...)})
	return now
}

// Records is a copy.
func (t *Trace) Records() []Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.all)
}

// String is one line a record, with seconds from the beginning.
func (t *Trace) String() string {
	var b strings.Builder
	for _, r := range t.Records() {
		fmt.Fprintf(&b, "%8.3f %-12s %s\n", r.At.Sub(t.began).Seconds(), r.Who, r.Text)
	}
	return b.String()
}
