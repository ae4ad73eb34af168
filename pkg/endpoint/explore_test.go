package endpoint_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// explore walks through every state that can be reached from an empty directory
// within the budget, breadth first. It returns the first violation with a shortest
// trace. After the walk it checks two promises on the whole graph: steps that need no
// help from outside lead to a symlink that leads to a driver which answers, if there
// is one (I10), and to a directory without dead names.
func explore(m *model, b budget, limit int) (int, error) {
	start := world{left: b}
	seen := map[world]int32{start: 0}
	states := []world{start}
	parent := []int32{-1}
	label := []move{{}}
	var next []move
	var from, to []int32
	for at := 0; at < len(states); at++ {
		if len(states) > limit {
			return len(states), fmt.Errorf("more than %d states", limit)
		}
		next = states[at].moves(next[:0])
		for _, mv := range next {
			w := states[at]
			if err := w.apply(mv, m); err != nil {
				return len(states), fmt.Errorf("%w\n%s", err, trace(states, parent, label, int32(at), &mv))
			}
			id, known := seen[w]
			if !known {
				id = int32(len(states))
				seen[w] = id
				states, parent, label = append(states, w), append(parent, int32(at)), append(label, mv)
			}
			if !mv.outside() {
				from, to = append(from, int32(at)), append(to, id)
			}
		}
	}
	for _, p := range promises {
		if bad := neverGood(states, from, to, p.due, p.good); bad >= 0 {
			return len(states), fmt.Errorf("violates I10: %s\n%s\nin the end: %+v", p.name, trace(states, parent, label, bad, nil), states[bad])
		}
	}
	return len(states), nil
}

var promises = []struct {
	name      string
	due, good func(*world) bool
}{
	{
		"a driver answers, and nothing leads to a symlink that leads to one",
		func(w *world) bool { return w.someRegistrar() && w.reachable() },
		// One that hangs may end it: being absent or dead is the only reason to turn away.
		func(w *world) bool { return w.listens(w.resolves()) },
	},
	{
		"a name on which nobody listens stays",
		func(w *world) bool { return w.someRegistrar() },
		func(w *world) bool {
			for g := range w.d {
				if w.d[g].named && !w.lives(uint8(g+1)) {
					return false
				}
			}
			return true
		},
	},
}

// reachable: a driver answers on an inode that has a name.
func (w *world) reachable() bool {
	for g := range w.d {
		n := uint8(g + 1)
		if w.answers(n) && (w.socket == n || w.d[g].named) {
			return true
		}
	}
	return false
}

func neverGood(states []world, from, to []int32, due, good func(*world) bool) int32 {
	first := make([]int32, len(states)+1)
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
	ok := make([]bool, len(states))
	var work []int32
	for i := range states {
		if good(&states[i]) {
			ok[i] = true
			work = append(work, int32(i))
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
	for i := range states {
		if !ok[i] && due(&states[i]) {
			return int32(i)
		}
	}
	return -1
}

func trace(states []world, parent []int32, label []move, at int32, last *move) string {
	var steps []string
	if last != nil {
		steps = append(steps, last.name(&states[at]))
	}
	for ; at > 0; at = parent[at] {
		steps = append(steps, label[at].name(&states[parent[at]]))
	}
	var b strings.Builder
	for i := len(steps) - 1; i >= 0; i-- {
		fmt.Fprintf(&b, "%3d. %s\n", len(steps)-i, steps[i])
	}
	return b.String()
}

var scenarios = []struct {
	name   string
	b      budget
	coarse bool
	soak   bool // only with EXPLORE=soak (make soak)
}{
	{name: "one-generation", b: budget{Drivers: 1, Besides: 1, DriverTerms: 1, DriverKills: 1, Hangs: 1, Registrars: 1, Leaves: 1, LinkRemovals: 1, Wipes: 1, Failures: 1}},
	{name: "two-generations", b: budget{Drivers: 2, DriverTerms: 2, DriverKills: 1, Registrars: 1, Leaves: 1}},
	{name: "two-by-rename", b: budget{Drivers: 2, Besides: 2, DriverTerms: 2, Registrars: 1, Leaves: 1}},
	{name: "three-generations", b: budget{Drivers: 3, DriverTerms: 2, DriverKills: 1, Registrars: 1}},
	{name: "hangs", b: budget{Drivers: 2, Besides: 1, Hangs: 2, DriverTerms: 1, Registrars: 1}},
	{name: "wipe", b: budget{Drivers: 2, Wipes: 1, LinkRemovals: 1, Registrars: 1}},
	{name: "failures", b: budget{Drivers: 2, DriverTerms: 1, Registrars: 1, Failures: 2, Leaves: 1}},
	{name: "roll-back", b: budget{Drivers: 1, DriverTerms: 1, Registrars: 2, Leaves: 2}, coarse: true},
	{name: "crashes", b: budget{Drivers: 2, DriverKills: 2, Registrars: 2, Crashes: 1}, coarse: true},
	{name: "surge", b: budget{Drivers: 2, DriverTerms: 1, Registrars: 2}, coarse: true},
	{name: "surge-and-leave", b: budget{Drivers: 2, DriverTerms: 1, Registrars: 2, Leaves: 1}, coarse: true, soak: true},
	{name: "roles", b: budget{Drivers: 2, DriverTerms: 1, Registrars: 2, Roles: 1}, coarse: true, soak: true},
	{name: "frozen", b: budget{Drivers: 2, DriverTerms: 1, Registrars: 2, Freezes: 1}, coarse: true, soak: true},
	{name: "surge-finely", b: budget{Drivers: 2, DriverTerms: 1, Registrars: 2}, soak: true},
}

func TestExplorer(t *testing.T) {
	soak := os.Getenv("EXPLORE") == "soak"
	for _, sc := range scenarios {
		if sc.soak && !soak || race && sc.coarse { // make test explores once more without the race detector
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			n, err := explore(&model{coarse: sc.coarse}, sc.b, 20_000_000)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states", n)
		})
	}
}
