package ownership_test

// The world of the explorer: three instances that run the real Step, one incumbent,
// kubelet, the path, the lease file, and everything that may happen to them from
// outside. Each system call is a step of its own, so that any other process may come
// between two of them.

import (
	"fmt"

	own "github.com/holdfast-csi/node-driver-registrar/pkg/ownership"
)

const slots = 3 // instances of ours; an instance that restarts is a new one

// Whose socket stands at the path.
const (
	nobody    = 0         // the path is absent
	ours      = 1         // a socket of ours; inst.at says who has it
	incumbent = slots + 1 // in kube.conn too, where 1..3 are instances of ours
)

type proc uint8

const (
	unborn proc = iota
	alive
	frozen
	dead
)

// Identities of inodes, kept small so that equal situations are equal values: one for
// what stands at the path now, one for all that no longer does.
const (
	idNone = iota
	idPath
	idStale
)

// The state of flock on the lease file.
type lock uint8

const (
	unlocked lock = iota
	shared
	exclusive
	orphanShared // on a file that an outsider removed
	orphanExclusive
	strayShared // on a file that a leaver had removed before it was locked
)

type inst struct {
	proc   proc
	st     packedState
	queue  [3]packedAction
	n      uint8
	mid    uint8 // system calls done within the first action of the queue
	open   bool  // its listener is open, and it accepts on it
	at     bool  // the listener that it accepts on, or has a spare of, is the one at the path
	lock   lock
	holds  uint8 // the instance to which it holds a connection
	early  bool  // and did so before that one was granted the lease
	hungUp bool  // kubelet's connection ended while it was frozen
	up     bool  // its driver answers
	armed  bool  // the back-off runs
	owes   uint8 // publications it may still make for what happened (I6)

	willing   bool // its driver answered since it last published
	misjudged bool // its last look met an incumbent between bind and listen
	inGap     bool // its last look met an incumbent between unlink and bind
	exposed   bool // an outsider removed the lease file that it held, and it holds no new one yet
	starting  bool // what it was last told to publish is its start's duty
	slow      bool // its last look was answered too late
	stalled   bool // it was frozen while it held the lease exclusively
	excused   bool // it may publish, whatever kubelet sees of it (I9)
	share     sharing
}

type kube struct {
	never  bool  // v1.34.4: never tries again after NodeGetInfo or Notify failed
	want   bool  // the path is in the desired state
	fresh  bool  // with a new UUID: unregister, then register
	given  bool  // gave up until the next Create
	reg    bool  // the CSINode has the driver
	old    bool  // what it was told is no longer so
	conn   uint8 // whom it has asked and not yet told
	connOK bool  // that connection belongs to the owner's present socket
}

type budget struct {
	Ours, Terms, Crashes, Freezes, PathRemovals, LeaseRemovals uint8
	Incumbents, Refusals, KubeletRestarts, DriverToggles       uint8
	Slows, Changes, Failures, Cuts                             uint8
}

type world struct {
	in [slots]inst
	rest
}

// rest is the world without the instances.
type rest struct {
	inc       proc // the incumbent: alive means serving, frozen means starting
	incBound  bool // it has bound and does not listen yet
	gap       bool // it removed a socket and has not bound yet
	incOpen   bool
	path      uint8 // whose socket stands there
	lease     bool  // the lease file exists
	dirty     bool  // something happened while one was leaving that excuses leftovers
	k         kube
	noKubelet bool
	shares    bool
	left      budget
}

type packedState struct {
	phase, op, lease, sight, id, times, kubelet, stage uint8
	again, accepting, owed, due, stale                 bool
	shares, spare, orphan, alone, giving               bool
}

type packedAction struct {
	do, id, pause, why uint8
	patient, brief     bool
}

func pack(s own.State) packedState {
	return packedState{uint8(s.Phase), uint8(s.Op), uint8(s.Lease), uint8(s.Seen.Sight), uint8(s.Seen.ID.Ino), s.Seen.Times, uint8(s.Kubelet), uint8(s.Stage), s.Again, s.Accepting, s.Owed, s.Due, s.Stale, s.Shares, s.Spare, s.Orphan, s.Alone, s.Giving}
}

func (p packedState) unpack() own.State {
	return own.State{
		Phase: own.Phase(p.phase), Op: own.Op(p.op), Lease: own.Lease(p.lease),
		Seen:    own.Sighting{Sight: own.Sight(p.sight), ID: own.SocketID{Ino: uint64(p.id)}, Times: p.times},
		Kubelet: own.Kubelet(p.kubelet), Stage: own.Stage(p.stage),
		Again: p.again, Accepting: p.accepting, Owed: p.owed, Due: p.due, Stale: p.stale,
		Shares: p.shares, Spare: p.spare, Orphan: p.orphan, Alone: p.alone, Giving: p.giving,
	}
}

func packAction(a own.Action) packedAction {
	return packedAction{uint8(a.Do), uint8(a.ID.Ino), uint8(a.Pause), uint8(a.Why), a.Patient, a.Brief}
}

// running says that instance i lives and has not been asked to leave.
func (w *world) running(i int) bool {
	p := w.in[i].proc
	ph := own.Phase(w.in[i].st.phase)
	return (p == alive || p == frozen) && (ph == own.Waiting || ph == own.Running)
}

func (w *world) lives(i int) bool { return w.in[i].proc == alive || w.in[i].proc == frozen }

// answers says that the socket at the path has somebody who answers.
func (w *world) answers() bool {
	switch w.path {
	case nobody:
		return false
	case incumbent:
		return w.inc == alive && w.incOpen
	}
	return w.answerer(-1) != 0
}

// answerer is the instance of ours, other than i, that answers at the path, the newest
// if there are several; 0 if none does.
func (w *world) answerer(i int) uint8 {
	for j := slots - 1; j >= 0; j-- {
		if j != i && w.in[j].proc == alive && w.in[j].open && w.in[j].at {
			return uint8(j + 1)
		}
	}
	return 0
}

// mine says that instance i accepts at the path.
func (w *world) mine(i int) bool { return w.in[i].open && w.in[i].at }

// sight is what instance i sees when it looks.
func (w *world) sight(i int) (own.Sight, uint8) {
	if w.path == nobody {
		return own.Absent, idNone
	}
	if w.path == incumbent {
		if w.answers() {
			return own.Incumbent, idPath
		}
		return own.Refused, idPath
	}
	switch {
	case w.mine(i):
		return own.Mine, idPath
	case w.answerer(i) != 0:
		return own.Ours, idPath
	}
	for j := range w.in { // a frozen acceptor, or a spare, i's own among them
		if w.in[j].at {
			return own.Silent, idPath
		}
	}
	return own.Refused, idPath
}

// pathChanges forgets the identity that stood at the path, in every memory.
func (w *world) pathChanges() {
	for i := range w.in {
		in := &w.in[i]
		if in.st.id == idPath {
			in.st.id = idStale
		}
		for j := range in.queue[:in.n] {
			if in.queue[j].id == idPath {
				in.queue[j].id = idStale
			}
		}
	}
}

func (w *world) create(owner uint8) {
	w.pathChanges()
	w.path, w.k.old = owner, false
	w.nobodyAt()
	if !w.noKubelet {
		w.k.want, w.k.fresh, w.k.given = true, true, false
	}
}

func (w *world) unlink() {
	if w.path == nobody {
		return
	}
	w.pathChanges()
	w.path = nobody
	w.nobodyAt()
	w.k.want, w.k.fresh, w.k.reg, w.k.given, w.k.old = false, false, false, false, false
}

func (w *world) nobodyAt() {
	for i := range w.in {
		w.in[i].at = false
	}
}

// closeListener ends accepting on the present socket of owner.
func (w *world) closeListener(owner uint8) {
	if owner == incumbent {
		w.incOpen = false
	} else {
		w.in[owner-1].open, w.in[owner-1].at = false, false
	}
	if w.k.conn == owner {
		w.k.connOK = false
	}
	if owner != incumbent {
		w.in[owner-1].hungUp = false
	}
}

func (w *world) unlinkLease() {
	w.lease = false
	for i := range w.in {
		switch w.in[i].lock {
		case shared:
			w.in[i].lock, w.in[i].exposed = orphanShared, true
		case exclusive:
			w.in[i].lock = orphanExclusive
		case unlocked, orphanShared, orphanExclusive, strayShared:
		}
	}
}

// dies ends a process, by its own exit or otherwise.
func (w *world) dies(m *model, i int) {
	if w.in[i].open {
		w.closeListener(uint8(i + 1))
	}
	w.hangUp(m, i)
	if w.k.conn == uint8(i+1) { // the connection ends without a word
		w.k.conn, w.k.reg, w.k.given = 0, false, w.k.never && !w.k.fresh
	}
	for j := range w.in {
		if w.in[j].holds == uint8(i+1) {
			w.in[j].holds = 0
		}
	}
	w.in[i] = inst{proc: dead}
}

// happened lets every instance publish once more: the bound of I6.
func (w *world) happened() {
	for i := range w.in {
		if w.in[i].owes < 3 {
			w.in[i].owes++
		}
	}
}

// tell gives instance i a piece of news, and takes its orders.
func (w *world) tell(i int, e own.Event) error {
	_, err := w.ask(i, e)
	return err
}

// ask gives instance i a piece of news, takes its orders, and returns the one among
// them that is the answer to a question.
func (w *world) ask(i int, e own.Event) (own.Do, error) {
	in := &w.in[i]
	s, actions := own.Step(in.st.unpack(), e)
	in.st = pack(s)
	answer := own.Fault
	w.hears(i, e.News)
	for _, a := range actions {
		switch a.Do {
		case own.BackOff:
			in.armed = true
			continue
		case own.Give, own.Decline, own.Defer, own.TurnAway:
			answer = a.Do
			continue
		case own.Yield:
			w.yields(i)
			continue
		}
		if a.Do == own.Fault {
			return answer, fmt.Errorf("instance %d: a fault: %+v in %+v", i+1, e, s)
		}
		if a.Do == own.Publish && w.mine(i) && s.Kubelet == own.Confirmed && !w.k.old && !in.excused {
			return answer, fmt.Errorf("violates I6: instance %d replaces its own socket, which kubelet has confirmed", i+1)
		}
		if a.Do == own.Publish {
			in.starting = s.Owed
			in.excused = w.shares && (in.excused || !w.quiet()) // what kubelet does while it publishes comes too late
		}
		if int(in.n) == len(in.queue) {
			return answer, fmt.Errorf("instance %d: more than %d actions wait", i+1, len(in.queue))
		}
		in.queue[in.n] = packAction(a)
		in.n++
	}
	return answer, nil
}

// pop takes the first action off the queue of i.
func (w *world) pop(i int) {
	in := &w.in[i]
	copy(in.queue[:], in.queue[1:])
	in.n--
	in.queue[in.n] = packedAction{}
	in.mid = 0
}
