package ownership_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	own "github.com/holdfast-csi/node-driver-registrar/pkg/ownership"
)

var update = flag.Bool("update", false, "write testdata/cells.golden anew")

// allEvents are all kinds of news, with every sight where a sight belongs to it.
func allEvents() []own.Event {
	id := own.SocketID{Ino: 7}
	var all []own.Event
	for n := own.Start; n <= own.Term; n++ {
		switch n {
		case own.Saw:
			for s := own.Unknown; s <= own.DirGone; s++ {
				e := own.Event{News: n, Sight: s}
				if s == own.Mine || s == own.Refused || s == own.Ours || s == own.Incumbent || s == own.Silent {
					e.ID = id
				}
				all = append(all, e)
			}
		case own.PathUnfit:
			all = append(all, own.Event{News: n, Sight: own.NotSocket}, own.Event{News: n, Sight: own.DirGone})
		default:
			all = append(all, own.Event{News: n})
		}
	}
	return all
}

// reachable lists every state that any sequence of events leads to, in the order in
// which they are found.
func reachable() []own.State {
	start := own.State{Shares: true}
	seen := map[own.State]bool{start: true}
	states := []own.State{start}
	for i := 0; i < len(states); i++ {
		for _, e := range allEvents() {
			next, _ := own.Step(states[i], e)
			if !seen[next] {
				seen[next] = true
				states = append(states, next)
			}
		}
	}
	return states
}

// The table of all cells: what Step makes of each event in each state. A change of
// the protocol shows up here, cell by cell, in review. States in which an event is
// merely out of place (a fault, or nothing happens) or noted during an operation are
// left out, and so are those that only multiply others (see plain), and what is so
// without the part that an instance has in a shared listener as well.
func TestCells(t *testing.T) {
	var b bytes.Buffer
	states, cells := reachable(), 0
	for _, s := range states {
		var rows []string
		for _, e := range allEvents() {
			next, actions := own.Step(s, e)
			cells++
			nothing := next == s || s.Op != own.Idle && e.News >= own.Tick && e.News < own.RefusedTooLong
			if faulty(actions) || nothing && len(actions) == 0 || sameAlone(s, e, next, actions) {
				continue
			}
			rows = append(rows, fmt.Sprintf("  %-32s %s -> %s", eventName(e), doNames(actions), stateName(next)))
		}
		if len(rows) > 0 && plain(s) {
			fmt.Fprintf(&b, "%s\n%s\n", stateName(s), strings.Join(rows, "\n"))
		}
	}
	t.Logf("%d states, %d cells", len(states), cells)
	const golden = "testdata/cells.golden"
	if *update {
		if err := os.WriteFile(golden, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, b.Bytes()) {
		t.Errorf("the cells have changed: %s; if that is meant, run go test ./pkg/ownership -run Cells -update", firstDifference(want, b.Bytes()))
	}
}

// plain: "again" only adds one more look; and of what can be so beside everything else,
// the table has one at a time, with the lease held and no word of kubelet's that matters.
// Not every sequence of events can come about: one that owes a socket has no spare, and
// nobody hears of kubelet who neither accepts nor has one.
func plain(s own.State) bool {
	beside := 0
	for _, b := range []bool{s.Spare || s.Orphan, s.Alone, s.Giving, s.Due, s.Stale} {
		if b {
			beside++
		}
	}
	if s.Again || beside > 1 || s.Spare && s.Owed || s.Orphan && !s.Spare || s.Kubelet != own.Quiet && !s.Accepting && !s.Spare {
		return false
	}
	if s.Op == own.Adopting && !s.Owed || s.Op == own.Resuming && (s.Accepting || !s.Spare) {
		return false
	}
	shares := s.Spare || s.Orphan || s.Alone || s.Giving || s.Stale
	return !shares || s.Lease == own.Shared && (s.Kubelet == own.Quiet || s.Kubelet == own.Confirmed && s.Op == own.Idle) && s.Seen.Times <= 1
}

// sameAlone says that e means the same to an instance that has no part in a shared
// listener, and does not change what part s has.
func sameAlone(s own.State, e own.Event, next own.State, actions []own.Action) bool {
	alone := withParts(s, own.State{})
	if alone == s || s.Op == own.Adopting || s.Op == own.Resuming {
		return false
	}
	n, a := own.Step(alone, e)
	return slices.Equal(a, actions) && withParts(n, s) == next
}

func withParts(s, of own.State) own.State {
	s.Spare, s.Orphan, s.Alone, s.Giving = of.Spare, of.Orphan, of.Alone, of.Giving
	return s
}

func firstDifference(want, got []byte) string {
	w, g := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, w[i], g[i])
		}
	}
	return "one is longer"
}

// Leaving ends: from any state, whatever the outcomes of its operations, an instance
// that was asked to end comes to Exit within a bounded number of steps (the
// structural half of I8).
func TestLeavingEnds(t *testing.T) {
	const bound = 24
	for _, s := range reachable() {
		if s.Phase == own.Done {
			continue
		}
		if n := longest(s, own.Event{News: own.Term}, bound); n > bound {
			t.Fatalf("from %s leaving takes more than %d steps", stateName(s), bound)
		}
	}
}

// longest is the largest number of steps to Done that starts with e. A path on which
// the same look is repeated with ever new findings counts each of them once: the
// caller bounds them in time.
func longest(s own.State, e own.Event, left int) int {
	next, actions := own.Step(s, e)
	if next.Phase == own.Done {
		return 1
	}
	if left == 0 {
		return 1
	}
	worst := 0
	for _, e := range endings(next.Op) {
		if faulty(actions) {
			continue
		}
		worst = max(worst, longest(next, e, left-1))
		if worst >= left {
			break
		}
	}
	return worst + 1
}

func faulty(actions []own.Action) bool {
	return slices.ContainsFunc(actions, func(a own.Action) bool { return a.Do == own.Fault })
}

// endings are the outcomes that the operation can have. Looks are taken to find the
// same socket each time.
func endings(op own.Op) []own.Event {
	id := own.SocketID{Ino: 7}
	switch op {
	case own.AskingDriver:
		return []own.Event{ev(own.DriverUp), ev(own.DriverDown)}
	case own.Joining:
		return []own.Event{ev(own.LeaseHeld), ev(own.LeaseMissed)}
	case own.Looking:
		return []own.Event{{News: own.Saw, Sight: own.Refused, ID: id}, {News: own.Saw, Sight: own.Mine, ID: id}, {News: own.Saw, Sight: own.Incumbent, ID: id}, {News: own.Saw, Sight: own.Silent, ID: id}}
	case own.Resting:
		return []own.Event{ev(own.Rested)}
	case own.Publishing:
		return []own.Event{ev(own.Published), ev(own.PathTaken), ev(own.PathChanged), ev(own.PublishFailed)}
	case own.Claiming:
		return []own.Event{ev(own.Granted), ev(own.NotGranted)}
	case own.Removing:
		return []own.Event{ev(own.Removed), ev(own.NotRemoved)}
	case own.Stopping:
		return []own.Event{ev(own.Stopped)}
	case own.Adopting:
		return []own.Event{ev(own.Adopted), ev(own.NotAdopted), ev(own.Deferred)}
	case own.Resuming:
		return []own.Event{ev(own.Resumed), ev(own.NotResumed)}
	case own.Idle:
	}
	return nil
}

// FuzzStep feeds any events to any instance: Step is total, never acts twice at once,
// and does nothing after Exit.
func FuzzStep(f *testing.F) {
	events := allEvents()
	seed := func(shares bool, all ...own.Event) {
		var choices []byte
		for _, e := range all {
			choices = append(choices, byte(slices.IndexFunc(events, func(o own.Event) bool { return o.News == e.News && o.Sight == e.Sight })))
		}
		f.Add(shares, choices)
	}
	saw := func(s own.Sight) own.Event { return own.Event{News: own.Saw, Sight: s} }
	seed(false, ev(own.Start), ev(own.DriverUp), ev(own.LeaseHeld), saw(own.Absent), ev(own.Rested), saw(own.Absent), ev(own.DriverUp), ev(own.Published), ev(own.Term))
	seed(true, ev(own.Start), ev(own.DriverUp), ev(own.LeaseHeld), saw(own.Ours), ev(own.DriverUp), ev(own.Adopted), saw(own.Mine), ev(own.GiveAsked), ev(own.Outdated), ev(own.Given),
		ev(own.KubeletAsked), ev(own.Orphaned), ev(own.Resumed), saw(own.Mine), ev(own.DriverUp), ev(own.Published))
	f.Fuzz(func(t *testing.T, shares bool, choices []byte) {
		s := own.State{Shares: shares}
		for _, c := range choices {
			e := events[int(c)%len(events)]
			next, actions := own.Step(s, e)
			if again, same := own.Step(s, e); again != next || !slices.Equal(same, actions) {
				t.Fatalf("%+v: not a function of %+v", e, s)
			}
			ops := 0
			for _, a := range actions {
				switch a.Do {
				case own.AskDriver, own.Join, own.Look, own.Rest, own.Publish, own.Claim, own.Remove, own.StopServing, own.Adopt, own.Resume:
					ops++
				case own.LetGo, own.Goodbye, own.RemoveLease, own.BackOff, own.Exit, own.Fault, own.Give, own.Decline, own.Defer, own.Yield, own.TurnAway:
				}
				if s.Phase == own.Done {
					t.Fatalf("%+v after the end: %+v", e, actions)
				}
				if a.Do == own.Remove && s.Lease != own.Exclusive {
					t.Fatalf("I2: removes without the lease, in %+v", s)
				}
				if a.Do == own.Fault && next != s {
					t.Fatalf("a fault that changes %+v to %+v", s, next)
				}
			}
			if next.Phase != own.Done && next.Shares != shares {
				t.Fatalf("%+v makes %+v forget whether it shares", e, s)
			}
			if next.Accepting && next.Spare || next.Giving && !next.Accepting {
				t.Fatalf("%+v on %+v gives %+v: two parts at once", e, s, next)
			}
			if ops > 1 || ops == 1 && next.Op == own.Idle || ops == 1 && s.Op != own.Idle && next.Phase != own.Done && !ends(s.Op, e) {
				t.Fatalf("%d operations, in flight %v: %+v on %+v gives %+v", ops, next.Op, e, s, actions)
			}
			s = next
		}
	})
}

// ends says whether e is an outcome of op.
func ends(op own.Op, e own.Event) bool {
	for _, o := range endings(op) {
		if o.News == e.News {
			return true
		}
	}
	return e.News == own.PathUnfit && op == own.Publishing
}
