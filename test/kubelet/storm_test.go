package kubelet_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// seedFromEnv gives the seed of a test that is random: HOLDFAST_SEED, or a new
// one. It is printed, so that a failure can be had again.
func seedFromEnv(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("HOLDFAST_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("HOLDFAST_SEED: %v", err)
		}
	}
	t.Logf("HOLDFAST_SEED=%d", seed)
	return seed
}

// TestStorm throws everything at a node for HOLDFAST_STORM (default 30 s), in
// rounds of some seconds: starts, SIGTERM, SIGKILL, SIGSTOP, removals, incumbents,
// drivers that restart and overlap and remove each other's csi.sock, and kubelet
// restarts; with registrars that hand their listener over and others that announce each
// takeover, or only a few of them, or none. After each round one registrar of ours lives: it must be registered, and
// kubelet must reach the youngest driver at the announced endpoint, also when the
// older ones have removed its csi.sock. Then it leaves: nothing may be left. And at no
// time may the registration socket go while one of ours holds the lease, unless
// somebody else took it away.
//
// Three nodes are in the storm at a time, each with its own seeds. A round's
// script depends on its seed alone, and is in the trace. To have a round again,
// give its seed as HOLDFAST_SEED: then there is one node, and it begins with it.
func TestStorm(t *testing.T) {
	t.Parallel()
	length := 30 * time.Second
	if s := os.Getenv("HOLDFAST_STORM"); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatalf("HOLDFAST_STORM: %v", err)
		}
	}
	nodes := 3
	if os.Getenv("HOLDFAST_SEED") != "" {
		nodes = 1
	}
	for i := range nodes {
		t.Run(fmt.Sprint("node ", i+1), func(t *testing.T) {
			t.Parallel()
			stormFor(t, length, seedFromEnv(t))
		})
	}
}

func stormFor(t *testing.T, length time.Duration, seed uint64) {
	end := time.Now().Add(length)
	rounds, actions := 0, 0
	for ; rounds == 0 || time.Now().Before(end); rounds++ {
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			actions += newStorm(t, seed).round()
		})
		if !ok {
			t.Fatalf("to have this round again: HOLDFAST_SEED=%d HOLDFAST_STORM=1s go test -race -run TestStorm", seed)
		}
		seed = rand.New(rand.NewPCG(seed, 1)).Uint64()
	}
	t.Logf("%d rounds, %d actions, 0 violations", rounds, actions)
}

const (
	stormSlots  = 4 // registrars of ours at a time
	stormChaos  = 6 * time.Second
	stormSettle = time.Minute // kubelet's own back-off after failed dials included
)

// step is one line of a round's script.
type step struct {
	after  time.Duration // since the step before
	action string
	slot   int
}

// stormActions, with how often each is drawn.
var stormActions = []struct {
	name   string
	weight int
}{
	{"start", 30}, {"term", 14}, {"kill", 8}, {"freeze", 8}, {"thaw", 10}, {"remove", 6},
	{"incumbent-start", 3}, {"incumbent-term", 3}, {"incumbent-kill", 2},
	{"driver-term", 4}, {"driver-kill", 2}, {"driver-start", 6}, {"driver-overlap", 5},
	{"kubelet-term", 2}, {"kubelet-kill", 1},
}

// script draws the steps of one round.
func script(random *rand.Rand) []step {
	total := 0
	for _, a := range stormActions {
		total += a.weight
	}
	var steps []step
	for length := time.Duration(0); length < stormChaos; {
		s := step{slot: random.IntN(stormSlots)}
		if random.IntN(3) > 0 { // else at once
			s.after = time.Duration(random.IntN(200)) * time.Millisecond
		}
		draw := random.IntN(total)
		for _, a := range stormActions {
			if draw -= a.weight; draw < 0 {
				s.action = a.name
				break
			}
		}
		length += s.after
		steps = append(steps, s)
	}
	return steps
}

// storm is one round's world.
type storm struct {
	*harness.Node
	t         *testing.T
	random    *rand.Rand
	kubelet   *harness.Proc
	drivers   []*harness.Proc // those that live
	incumbent *harness.Proc
	slots     [stormSlots]*harness.Proc
	leaving   []leaver
	announce  int // of ten registrars of ours so many have --handover=announce

	holders    map[*harness.Proc]time.Time // of ours, by when they were first seen with the lease
	incumbents []*harness.Proc             // all there were
	removed    []time.Time                 // when the script removed the socket
}

// leaver is a process that was told to leave.
type leaver struct {
	p     *harness.Proc
	sent  time.Time
	timed bool // false if it was frozen meanwhile: then nothing is promised
}

func newStorm(t *testing.T, seed uint64) *storm {
	n := harness.New(t, bin)
	random := rand.New(rand.NewPCG(seed, 0))
	return &storm{
		Node: n, t: t, random: random, announce: []int{0, 0, 1, 5, 10}[random.IntN(5)],
		kubelet: n.StartKubelet(), drivers: []*harness.Proc{n.StartDriver()},
		holders: map[*harness.Proc]time.Time{},
	}
}

// round plays a script and checks the end; it gives the number of steps.
func (s *storm) round() int {
	steps := script(s.random)
	for _, st := range steps {
		if st.after > 0 {
			<-time.After(st.after) // the script's rhythm
		}
		s.Mark("storm: %s %d", st.action, st.slot)
		s.play(st)
		s.noteHolders()
	}
	s.settle()
	s.checkRemoves()
	return len(steps)
}

func (s *storm) play(st step) {
	p := s.slots[st.slot]
	up := p != nil && p.Running()
	name, who, _ := strings.Cut(st.action, "-")
	switch {
	case name == "incumbent":
		s.incumbentDoes(who)
	case name == "driver":
		s.driverDoes(who, st.slot)
	case name == "kubelet":
		if who == "kill" {
			s.kubelet.Kill()
		} else {
			s.kubelet.Terminate()
		}
		s.kubelet = s.StartKubelet()
	case name == "remove":
		s.removed = append(s.removed, time.Now())
		if err := os.Remove(s.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Errorf("remove: %v", err)
		}
	case name == "start" && !up:
		s.slots[st.slot] = s.startOurs()
	case name == "term" && up:
		s.term(st.slot)
	case name == "kill" && up:
		p.Kill()
	case name == "freeze" && up:
		s.freeze(p)
	case name == "thaw" && up && p.Frozen():
		p.Thaw()
	case name == "freeze" && len(s.leaving) > 0: // nobody in the slot: one that leaves
		if l := s.leaving[len(s.leaving)-1]; l.p.Running() {
			s.freeze(l.p)
		}
	}
}

func (s *storm) freeze(p *harness.Proc) {
	for i := range s.leaving {
		if s.leaving[i].p == p {
			s.leaving[i].timed = false
		}
	}
	p.Freeze()
}

func (s *storm) term(slot int) {
	p := s.slots[slot]
	s.leaving = append(s.leaving, leaver{p: p, timed: !p.Frozen(), sent: p.SendTerm()})
	s.slots[slot] = nil
}

func (s *storm) anyFrozen() bool {
	for _, p := range s.slots {
		if p != nil && p.Running() && p.Frozen() {
			return true
		}
	}
	for _, l := range s.leaving {
		if l.p.Running() && l.p.Frozen() {
			return true
		}
	}
	return false
}

// settle lets one live, wants it registered, and then wants nothing left. In half
// of the rounds who is frozen stays so until the survivor is registered.
func (s *storm) settle() {
	s.Mark("storm: the end of the round")
	// An older one may have lost its last name while no registrar lived.
	s.drivers = append(s.drivers, s.StartDriver())
	s.incumbentDoes("term")
	survivor, others := s.draw()
	thawFirst := s.random.IntN(2) == 0
	var later []int
	for _, i := range others {
		if !thawFirst && s.slots[i].Frozen() {
			later = append(later, i)
			continue
		}
		s.end(i)
	}
	if thawFirst {
		s.allLeft()
	}
	s.survives(survivor)
	for _, i := range later {
		s.end(i)
	}
	s.allLeft()
	s.incumbentEnded()
	s.reached()
	s.survives(survivor)

	s.Mark("storm: the last one leaves")
	survivor.Terminate()
	s.AssertLeft()
	s.AwaitGone(soon)
	s.AssertDir()
}

// draw says who survives, one that is not frozen, and which slots do not.
func (s *storm) draw() (survivor *harness.Proc, others []int) {
	for _, i := range s.random.Perm(len(s.slots)) {
		p := s.slots[i]
		switch {
		case p == nil || !p.Running():
		case survivor == nil && !p.Frozen():
			survivor = p
		default:
			others = append(others, i)
		}
	}
	if survivor == nil {
		survivor = s.startOurs()
	}
	return survivor, others
}

// end ends one that lives, thawed, with SIGTERM or SIGKILL.
func (s *storm) end(slot int) {
	p := s.slots[slot]
	if p.Frozen() {
		p.Thaw()
	}
	if s.random.IntN(2) == 0 {
		p.Kill()
	} else {
		s.term(slot)
	}
}

// allLeft checks all that were told to leave.
func (s *storm) allLeft() {
	for _, l := range s.leaving {
		s.left(l)
	}
	s.leaving = nil
}

// survives wants this one at the path, and kubelet content.
func (s *storm) survives(p *harness.Proc) {
	s.AwaitAcceptor(patient, p)
	s.AwaitRegistered(stormSettle)
	s.AwaitQuiet(onePair, patient)
	if !s.Registered() {
		s.Fatalf("registered, but it did not last")
	}
	s.AwaitAcceptor(soon, p)
	if !s.anyFrozen() { // a leaver may be frozen while it holds the lease exclusively: the start went on without
		s.AwaitLease(soon, p)
	}
}

func (s *storm) noteHolders() {
	for _, p := range s.slots {
		if p == nil || !p.Running() {
			continue
		}
		if _, known := s.holders[p]; !known && s.HoldsLease(p) {
			s.holders[p] = time.Now()
		}
	}
}

// checkRemoves wants every remove of the socket to be the script's, or at a time
// at which an incumbent was about, or none of ours held the lease (I2, I5). What
// is known only to the half second is given that.
func (s *storm) checkRemoves() {
	const margin = 500 * time.Millisecond
	for _, r := range s.Removes(time.Time{}) {
		if slices.ContainsFunc(s.removed, func(at time.Time) bool { return r.Sub(at).Abs() < margin }) ||
			slices.ContainsFunc(s.incumbents, func(p *harness.Proc) bool {
				return r.After(p.Started) && r.Before(p.Ended().Add(margin))
			}) {
			continue
		}
		for p, since := range s.holders {
			if r.After(since.Add(margin)) && r.Before(p.ToldToEnd()) {
				s.Errorf("the socket was removed at %s, while %s held the lease", r.Format(time.StampMicro), p.Name)
			}
		}
	}
}

// left checks one that was told to leave.
func (s *storm) left(l leaver) {
	if l.p.Running() && l.p.Frozen() {
		l.p.Thaw()
	}
	if l.p.Said("") == 0 {
		// It was told before its main could listen; then SIGTERM is the end.
		l.p.AwaitExit(soon)
		return
	}
	if l.timed {
		l.p.AwaitTerm(l.sent)
		return
	}
	if code := l.p.AwaitExit(soon); code != 0 {
		s.Errorf("%s: exit %d after SIGTERM, want 0", l.p.Name, code)
	}
}
