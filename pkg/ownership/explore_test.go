package ownership_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// explore walks through every state that can be reached from an empty node within
// the budget, breadth first, so that a bad trace is a shortest one. It returns the
// first violation with the steps that lead to it. After the walk it checks I3: from
// every state in which a willing instance lives, some sequence of steps that needs
// no help from outside leads to a path that answers and a driver that is registered.
func explore(m *model, b budget, never bool, limit int) (int, error) {
	start, err := begin(m, b, never)
	if err != nil {
		return 0, err
	}
	all := states{instance: map[inst]uint32{}, seen: map[state]int32{}}
	all.add(start)
	parent := []int32{-1}
	label := []move{{}}
	var next []move
	var from, to []int32 // edges that need no outside help
	for at := 0; at < all.len(); at++ {
		if all.len() > limit {
			return all.len(), fmt.Errorf("more than %d states", limit)
		}
		now := all.at(int32(at))
		next = now.moves(m, next[:0])
		for _, mv := range next {
			w := now
			if err := w.apply(mv, m); err != nil {
				return all.len(), fmt.Errorf("%w\n%s", err, trace(&all, parent, label, int32(at), &mv))
			}
			id, known := all.add(w)
			if !known {
				parent = append(parent, int32(at))
				label = append(label, mv)
			}
			if !mv.outside() {
				from, to = append(from, int32(at)), append(to, id)
			}
		}
	}
	if bad := neverGood(&all, from, to); bad >= 0 {
		return all.len(), fmt.Errorf("violates I3: a willing instance lives, and nothing leads back to a registered driver\n%s\nin the end: %s",
			trace(&all, parent, label, bad, nil), describe(all.at(bad)))
	}
	return all.len(), nil
}

// states are all states that were found. Instances are in few of them, so each is kept
// once, and a state says which.
type states struct {
	instance  map[inst]uint32
	instances []inst
	seen      map[state]int32
	list      []state
}

type state struct {
	in [slots]uint32
	rest
}

func (s *states) len() int { return len(s.list) }

// add returns the number of w, and whether it had one.
func (s *states) add(w world) (int32, bool) {
	k := state{rest: w.rest}
	for i, in := range w.in {
		id, ok := s.instance[in]
		if !ok {
			id = uint32(len(s.instances))
			s.instance[in] = id
			s.instances = append(s.instances, in)
		}
		k.in[i] = id
	}
	id, ok := s.seen[k]
	if !ok {
		id = int32(len(s.list))
		s.seen[k] = id
		s.list = append(s.list, k)
	}
	return id, ok
}

func (s *states) at(i int32) world {
	k := &s.list[i]
	w := world{rest: k.rest}
	for j, id := range k.in {
		w.in[j] = s.instances[id]
	}
	return w
}

// begin is an empty node, or one on which the first instances have found their places.
func begin(m *model, b budget, never bool) (world, error) {
	w := world{rest: rest{k: kube{never: never}, noKubelet: m.coarse, shares: m.shares}}
	for i := range m.warm {
		w.left.Ours = 1
		next := []move{{starts, uint8(i)}}
		for len(next) > 0 {
			if err := w.apply(next[0], m); err != nil {
				return w, err
			}
			next = slices.DeleteFunc(w.moves(m, nil), func(mv move) bool { return mv.outside() || mv.kind == tick && !w.looks(mv.i) })
		}
	}
	w.left = b
	return w, nil
}

// looks says that a tick would make a difference to i: it has not seen who answers.
func (w *world) looks(i uint8) bool {
	return !w.in[i].st.accepting && w.in[i].holds == 0
}

// good: the path answers and kubelet has registered what answers.
func good(w world) bool {
	return w.answers() && (w.noKubelet || w.k.reg && !w.k.fresh && w.k.conn == 0 && !w.k.old)
}

// owesAnswer: a willing instance lives. One case is excused: it stands by while
// another answers whose own driver is down, which it cannot know. (Several instances
// of a driver on one node have one csi.sock between them.)
func owesAnswer(w world) bool {
	for i := range w.in {
		if w.in[i].proc == alive && w.mine(i) && !w.in[i].up {
			return false
		}
	}
	for i := range w.in {
		if w.in[i].proc == alive && w.in[i].up && w.running(i) {
			return true
		}
	}
	return false
}

// neverGood returns a state that ought to lead to a good one and does not, or -1.
func neverGood(all *states, from, to []int32) int32 {
	// The edges, turned round and grouped by where they lead (a counting sort).
	first := make([]int32, all.len()+1)
	for _, t := range to {
		first[t+1]++
	}
	for i := 1; i < len(first); i++ {
		first[i] += first[i-1]
	}
	back := make([]int32, len(to))
	fill := append([]int32(nil), first...)
	for e, t := range to {
		back[fill[t]] = from[e]
		fill[t]++
	}
	ok := make([]bool, all.len())
	var work []int32
	for i := range int32(all.len()) {
		if good(all.at(i)) {
			ok[i] = true
			work = append(work, i)
		}
	}
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		for _, p := range back[first[i]:first[i+1]] {
			if !ok[p] {
				ok[p] = true
				work = append(work, p)
			}
		}
	}
	for i := range int32(all.len()) {
		if !ok[i] && owesAnswer(all.at(i)) {
			return i
		}
	}
	return -1
}

func trace(all *states, parent []int32, label []move, at int32, last *move) string {
	var steps []string
	if last != nil {
		w := all.at(at)
		steps = append(steps, last.name(&w))
	}
	for ; at > 0; at = parent[at] {
		w := all.at(parent[at])
		steps = append(steps, label[at].name(&w))
	}
	var b strings.Builder
	for i := len(steps) - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "%3d. %s\n", len(steps)-i, steps[i])
	}
	return b.String()
}

func describe(w world) string {
	var b strings.Builder
	fmt.Fprintf(&b, "path %d, incumbent %d, kubelet %+v\n", w.path, w.inc, w.k)
	for i := range w.in {
		fmt.Fprintf(&b, "  instance %d: proc %d open %v at %v lock %d up %v armed %v %+v %+v queue %v\n", i+1, w.in[i].proc, w.in[i].open, w.in[i].at, w.in[i].lock, w.in[i].up, w.in[i].armed, w.in[i].share, w.in[i].st.unpack(), w.in[i].queue[:w.in[i].n])
	}
	return b.String()
}

// Each scenario is explored to the end. Three instances are explored without kubelet:
// they meet at the path and the lease, and what each says to kubelet the scenarios
// with two have shown.
var scenarios = []struct {
	name   string
	b      budget
	nudges bool
	coarse bool
	shares bool
	warm   int  // so many instances are there already, and all is well
	soak   bool // only with EXPLORE=soak (make soak): minutes and gigabytes
}{
	{name: "one-alone", b: budget{Ours: 1, Terms: 1, Crashes: 1, PathRemovals: 1, LeaseRemovals: 1, Refusals: 1, KubeletRestarts: 1, DriverToggles: 1}, nudges: true},
	{name: "one-frozen", b: budget{Ours: 1, Terms: 1, Freezes: 1, PathRemovals: 1, Refusals: 1, KubeletRestarts: 1}, nudges: true},
	{name: "one-changes", b: budget{Ours: 1, Terms: 1, Changes: 2, Refusals: 1, DriverToggles: 1, Freezes: 1}, nudges: true},
	{name: "two-changes", b: budget{Ours: 2, Terms: 1, Changes: 1}},
	{name: "two-leave", b: budget{Ours: 2, Terms: 2}, nudges: true},
	{name: "two-slow", b: budget{Ours: 2, Terms: 1, Slows: 1}},
	{name: "two-lease-removed", b: budget{Ours: 2, Terms: 2, LeaseRemovals: 1}},
	{name: "two-path-removed", b: budget{Ours: 2, Terms: 1, PathRemovals: 1}},
	{name: "two-crash", b: budget{Ours: 2, Terms: 1, Crashes: 1}},
	{name: "two-freeze", b: budget{Ours: 2, Terms: 1, Freezes: 1}},
	{name: "two-drivers", b: budget{Ours: 2, Terms: 1, DriverToggles: 2}},
	{name: "two-refusals", b: budget{Ours: 2, Terms: 1, Refusals: 1}},
	{name: "two-freeze-lease", b: budget{Ours: 2, Freezes: 1, LeaseRemovals: 1}},
	{name: "two-freeze-driver", b: budget{Ours: 2, Freezes: 1, DriverToggles: 1}},
	{name: "two-slow-removed", b: budget{Ours: 2, Slows: 1, PathRemovals: 1}},
	{name: "two-slow-incumbent", b: budget{Ours: 2, Slows: 1, Incumbents: 1}},
	{name: "two-refused-removed", b: budget{Ours: 2, Refusals: 1, PathRemovals: 1}},
	{name: "incumbent-killed", b: budget{Ours: 1, Terms: 1, Incumbents: 1, Crashes: 1}, nudges: true},
	{name: "incumbent-frozen", b: budget{Ours: 1, Terms: 1, Incumbents: 1, Freezes: 1}, nudges: true},
	{name: "incumbent-removals", b: budget{Ours: 1, Terms: 1, Incumbents: 1, PathRemovals: 1, LeaseRemovals: 1}, nudges: true},
	{name: "incumbent-refused", b: budget{Ours: 1, Terms: 1, Incumbents: 1, Refusals: 1, KubeletRestarts: 1}, nudges: true},
	{name: "incumbent-driver", b: budget{Ours: 1, Terms: 1, Incumbents: 1, DriverToggles: 2}, nudges: true},
	{name: "incumbent-twice", b: budget{Ours: 1, Terms: 1, Incumbents: 2}, nudges: true},
	{name: "two-incumbent-killed", b: budget{Ours: 2, Incumbents: 1, Crashes: 1}, soak: true},
	{name: "incumbent-start", b: budget{Ours: 1, Incumbents: 1, Terms: 1}, nudges: true},
	{name: "two-incumbent", b: budget{Ours: 2, Terms: 1, Incumbents: 1}},
	{name: "three-leave", b: budget{Ours: 3, Terms: 3}, coarse: true},
	{name: "three-crash", b: budget{Ours: 3, Terms: 1, Crashes: 1}, coarse: true},
	{name: "three-freeze", b: budget{Ours: 3, Terms: 1, Freezes: 1}, coarse: true, soak: true},
	{name: "three-incumbent", b: budget{Ours: 3, Terms: 1, Incumbents: 1}, coarse: true, soak: true},
	{name: "three-path-removed", b: budget{Ours: 3, Terms: 1, PathRemovals: 1}, coarse: true, soak: true},
	{name: "three-lease-removed", b: budget{Ours: 3, Terms: 1, LeaseRemovals: 1}, coarse: true, soak: true},
	{name: "share-leave", b: budget{Ours: 2, Terms: 2}, shares: true, nudges: true},
	{name: "share-crash", b: budget{Ours: 2, Terms: 1, Crashes: 1}, shares: true},
	{name: "share-restarts", b: budget{Ours: 2, Terms: 1, KubeletRestarts: 1}, shares: true},
	{name: "share-changes", b: budget{Ours: 2, Terms: 1, Changes: 1}, shares: true},
	{name: "share-refusals", b: budget{Ours: 2, Terms: 1, Refusals: 1}, shares: true},
	{name: "share-failures", b: budget{Ours: 1, Terms: 1, Failures: 1, KubeletRestarts: 1}, warm: 1, shares: true},
	{name: "share-freeze", b: budget{Ours: 2, Freezes: 1}, shares: true},
	{name: "share-freeze-restart", b: budget{Ours: 1, Freezes: 1, KubeletRestarts: 1}, warm: 1, shares: true},
	{name: "share-crash-restart", b: budget{Ours: 1, Crashes: 1, KubeletRestarts: 1, Terms: 1}, warm: 1, shares: true},
	{name: "share-path-removed", b: budget{Ours: 2, PathRemovals: 1}, shares: true},
	{name: "share-lease-removed", b: budget{Ours: 1, Terms: 2, LeaseRemovals: 1}, warm: 1, shares: true},
	{name: "share-slow", b: budget{Ours: 2, Slows: 1}, shares: true},
	{name: "share-drivers", b: budget{Ours: 1, Terms: 1, DriverToggles: 2}, warm: 1, shares: true},
	{name: "share-incumbent", b: budget{Ours: 1, Incumbents: 1}, warm: 1, shares: true},
	{name: "share-cut", b: budget{Cuts: 1, Terms: 1, KubeletRestarts: 1}, warm: 2, nudges: true, shares: true},
	{name: "share-freeze-killed-asking", b: budget{Freezes: 1, Crashes: 1, KubeletRestarts: 1}, warm: 2, shares: true},
	{name: "share-crash-loop", b: budget{Ours: 2, Crashes: 2}, warm: 1, shares: true},
	{name: "share-three-surge", b: budget{Ours: 2, Terms: 2}, warm: 1, shares: true, coarse: true},
	{name: "share-three-crash", b: budget{Ours: 2, Crashes: 2, Terms: 1}, warm: 1, shares: true, coarse: true},
	{name: "share-three-failures", b: budget{Ours: 2, Failures: 2}, warm: 1, shares: true, coarse: true},
	{name: "share-three-killed-asking", b: budget{Ours: 1, Crashes: 2, KubeletRestarts: 1}, warm: 2, shares: true},
	{name: "share-three-frozen", b: budget{Ours: 1, Freezes: 1, Crashes: 1}, warm: 2, shares: true, coarse: true},
	{name: "share-three-path-removed", b: budget{Ours: 1, PathRemovals: 1}, warm: 2, shares: true, coarse: true},
	{name: "share-three-cut", b: budget{Ours: 1, Cuts: 1, Terms: 1}, warm: 2, shares: true, soak: true},
	{name: "share-three-restart", b: budget{Ours: 1, Terms: 1, KubeletRestarts: 1}, warm: 2, nudges: true, shares: true, soak: true},
	{name: "share-three-changes", b: budget{Ours: 1, Terms: 1, Changes: 1}, warm: 2, shares: true, soak: true},
	{name: "share-three-refused", b: budget{Ours: 1, KubeletRestarts: 1, Refusals: 1}, warm: 2, shares: true, soak: true},
	{name: "share-crash-loop-asking", b: budget{Ours: 2, Crashes: 2, KubeletRestarts: 1}, warm: 1, shares: true, soak: true},
	{name: "share-restart-leave", b: budget{Ours: 2, Terms: 2, KubeletRestarts: 1}, shares: true, nudges: true, soak: true},
	{name: "share-everything", b: budget{Ours: 2, Terms: 1, Crashes: 1, Changes: 1, KubeletRestarts: 1}, warm: 1, shares: true, soak: true},
	{name: "share-three-everything", b: budget{Ours: 2, Terms: 1, Crashes: 1, Freezes: 1}, warm: 1, shares: true, coarse: true, soak: true},
	{name: "two-everything", b: budget{Ours: 2, Terms: 2, Crashes: 1, Freezes: 1, PathRemovals: 1}, soak: true},
}

func TestExplorer(t *testing.T) {
	soak := os.Getenv("EXPLORE") == "soak"
	for _, sc := range scenarios {
		if sc.soak && !soak || race && (sc.coarse || sc.shares) { // make test explores once more without the race detector
			continue
		}
		for _, never := range []bool{false, true} {
			name := sc.name + "/kubelet-retries"
			if never && sc.coarse {
				continue
			}
			if never {
				name = sc.name + "/kubelet-1.34-never-retries"
			}
			t.Run(name, func(t *testing.T) {
				n, err := explore(&model{nudges: sc.nudges, coarse: sc.coarse, shares: sc.shares, warm: sc.warm}, sc.b, never, 20_000_000)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%d states", n)
			})
		}
	}
}
