package main

import (
	"strings"
	"testing"
	"time"
)

// asClaimed are two acts that came out as the demonstration says.
func asClaimed() (peer, ours act) {
	second := time.Second
	peer.outcomes = [steps]outcome{
		overlap:   {out: second, in: true, answers: true},
		oldLeaves: {out: 4 * second, unanswered: 5 * second},
		newLeaves: {out: 2 * second, unanswered: 3 * second},
		removed:   {out: 2 * second, unanswered: 3 * second},
		killed:    {in: true, unanswered: 3 * second},
	}
	for i := range ours.outcomes {
		ours.outcomes[i] = outcome{out: second, in: true, unanswered: 10 * time.Millisecond, answers: true}
	}
	for _, silent := range []int{overlap, newLeaves, killed} {
		ours.outcomes[silent].out = 0
	}
	ours.outcomes[oldLeaves] = outcome{in: true, answers: true}
	return peer, ours
}

// TestVerdict: whatever did not come out as claimed is an error.
func TestVerdict(t *testing.T) {
	t.Parallel()
	if err := verdict(asClaimed()); err != nil {
		t.Errorf("as claimed: %v", err)
	}
	for name, change := range map[string]func(peer, ours *act){
		"the peer did not lose the driver when the old":    func(p, _ *act) { p.outcomes[oldLeaves].in = true },
		"the peer did not lose the driver when the newest": func(p, _ *act) { p.outcomes[newLeaves].in = true },
		"the peer did not lose the driver when somebody":   func(p, _ *act) { p.outcomes[removed].in = true },
		"the peer's survivor took over":                    func(p, _ *act) { p.outcomes[killed].answers = true },
		"Holdfast lost the driver when a newer":            func(_, o *act) { o.outcomes[overlap].in = false },
		"Holdfast lost the driver when SIGKILL":            func(_, o *act) { o.outcomes[killed].in = false },
		"nobody of Holdfast answers when the newest":       func(_, o *act) { o.outcomes[newLeaves].answers = false },
		"lacked the driver for 1 ms when the old":          func(_, o *act) { o.outcomes[oldLeaves].out = time.Millisecond },
		"lacked the driver for 1 ms when a newer":          func(_, o *act) { o.outcomes[overlap].out = time.Millisecond },
		"lacked the driver for 1 ms when SIGKILL":          func(_, o *act) { o.outcomes[killed].out = time.Millisecond },
		"nobody answered for 1 ms when the old":            func(_, o *act) { o.outcomes[oldLeaves].unanswered = time.Millisecond },
	} {
		peer, ours := asClaimed()
		change(&peer, &ours)
		err := verdict(peer, ours)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("verdict = %v, want %q in it", err, name)
		}
	}
}

// TestTimeWithoutAnswer: nobody answers between two changes of the path.
func TestTimeWithoutAnswer(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	sights := []sight{{at(-50), "pod A", 1}, {at(100), "nobody", 0}, {at(250), "pod B", 2}}
	for i, want := range []time.Duration{100 * time.Millisecond, 150 * time.Millisecond, 150 * time.Millisecond} {
		if got := span(sights, i, at(0), at(400)); got != want {
			t.Errorf("sight %d lasted %v, want %v", i, got, want)
		}
	}
	bad := func(from, to time.Time) bool { return !to.After(at(100)) || !from.Before(at(250)) }
	if got, want := bar(at(0), at(400), bad), "█··█"; got != want {
		t.Errorf("bar = %s, want %s", got, want)
	}
}
