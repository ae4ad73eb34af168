package csidriver

import "time"

const (
	firstWait = 50 * time.Millisecond
	longWait  = time.Second
)

// Backoff is how long to wait before asking again: 50 ms, then twice as long
// each time, up to 1 s. The zero value is ready. Not safe for concurrent use.
type Backoff struct{ last time.Duration }

// Next returns the next wait.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(firstWait, 2*b.last), longWait)
	return b.last
}

// Reset makes Next begin again.
func (b *Backoff) Reset() { b.last = 0 }
