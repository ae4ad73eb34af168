package harness

import (
	"testing"
	"time"
)

func TestTimeline(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	in, out := map[string]string{"d": "node", "other": "x"}, map[string]string{"other": "x"}
	tl := &Timeline{}
	if _, ok := tl.NodeID("d"); ok {
		t.Error("an empty timeline has a driver")
	}
	tl.add(at(0), nil)
	tl.add(at(100), in)
	tl.add(at(200), out)
	tl.add(at(1200), in)
	tl.add(at(1300), in) // no change for d

	for _, c := range []struct {
		from, to int
		out      time.Duration
		pairs    int
	}{
		{0, 100, 100 * time.Millisecond, 0},
		{0, 150, 100 * time.Millisecond, 0}, // came, but had never left
		{100, 200, 0, 0},
		{100, 700, 500 * time.Millisecond, 0}, // left, is not back
		{100, 1300, time.Second, 1},
		{150, 1250, time.Second, 1},
		{700, 1250, 500 * time.Millisecond, 0}, // came, left earlier
		{1200, 9000, 0, 0},
		{-500, 0, 500 * time.Millisecond, 0},
	} {
		if got := tl.OutFor("d", at(c.from), at(c.to)); got != c.out {
			t.Errorf("OutFor(%d, %d) = %v, want %v", c.from, c.to, got, c.out)
		}
		if got := tl.Pairs("d", at(c.from), at(c.to)); got != c.pairs {
			t.Errorf("Pairs(%d, %d) = %d, want %d", c.from, c.to, got, c.pairs)
		}
	}
	if id, ok := tl.NodeID("d"); !ok || id != "node" {
		t.Errorf("NodeID = %q, %v", id, ok)
	}
}
