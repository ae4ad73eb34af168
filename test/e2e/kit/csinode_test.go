package kit

import (
	"testing"
	"time"
)

func TestMissing(t *testing.T) {
	now := time.Now()
	at := func(s float64) time.Time { return now.Add(time.Duration((s - 100) * float64(time.Second))) }
	in := func(s float64) Change { return Change{At: at(s), Present: true} }
	out := func(s float64) Change { return Change{At: at(s)} }
	for _, c := range []struct {
		name  string
		all   []Change
		since float64
		total time.Duration
		times int
	}{
		{"always there", []Change{in(1)}, 10, 0, 0},
		{"a gap", []Change{in(1), out(20), in(21)}, 10, time.Second, 1},
		{"a gap before", []Change{in(1), out(5), in(8)}, 10, 0, 0},
		{"in the middle of a gap", []Change{in(1), out(5), in(12)}, 10, 2 * time.Second, 1},
		{"two gaps", []Change{in(1), out(20), in(21), out(30), in(33)}, 10, 4 * time.Second, 2},
		{"other node ID", []Change{in(1), in(20), out(30), in(31)}, 10, time.Second, 1},
		{"gone for good", []Change{in(1), out(40)}, 10, 60 * time.Second, 1},
		{"never there", nil, 90, 10 * time.Second, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &Membership{all: c.all}
			total, times := m.Missing(at(c.since))
			if total.Round(time.Second) != c.total || times != c.times {
				t.Errorf("Missing = %v, %d; want %v, %d", total, times, c.total, c.times)
			}
		})
	}
}
