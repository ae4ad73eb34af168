package ownership_test

import (
	"fmt"

	own "github.com/holdfast-csi/node-driver-registrar/pkg/ownership"
)

// moveKind is one kind of step of the world. Those from firstOutside on are what
// nobody of ours does; they are bounded by the budget, and an instance is promised
// nothing about when they happen.
type moveKind uint8

const (
	act moveKind = iota // the next system call of an instance
	tick
	nudge
	backOffPassed
	hungUp // an instance that was frozen learns that kubelet has gone
	incumbentBinds
	incumbentListens
	kubeletAsks
	kubeletAsksIncumbent
	kubeletConfirms
	kubeletTiresOfFrozen
	getsSpare    // and hears what kubelet said, or hears that from another who accepts now
	closesSpare  // another listener is at the path
	hearsWord    // what kubelet said to the acceptor
	hearsGiven   // whether the newcomer accepts
	isOrphaned   // the acceptor has ended
	tiresOfTaker // the newcomer is frozen
	learns       // that kubelet was told what is no longer so

	firstOutside
	starts = iota - 1
	thaws
	killed
	term
	freezes
	driverToggles
	incumbentStarts
	incumbentTerm
	incumbentKilled
	kubeletRefuses
	kubeletRestarts
	pathRemoved
	leaseRemoved
	changes // what an instance has told kubelet is no longer so
	slow    // a look that a live instance answers too late: no event, and no reason to act
	unsure  // a look that tells nothing, for want of permission for one
	confirmsAndKilled
	handshakeFails
	cannotTell // kubelet asks, and a holder of a spare does not read what it is told
)

type move struct {
	kind moveKind
	i    uint8 // the instance, where the kind has one
}

func (m move) outside() bool { return m.kind >= firstOutside }

var moveNames = map[moveKind]string{
	getsSpare: "gets a spare", closesSpare: "closes its spare", hearsWord: "hears what kubelet said to the acceptor", hearsGiven: "hears whether the newcomer accepts",
	isOrphaned: "sees the acceptor's connection end", tiresOfTaker: "waits no longer for the newcomer", learns: "learns that kubelet was told what is no longer so",
	confirmsAndKilled: "is killed as kubelet has confirmed, and tells nobody", handshakeFails: "the handshake fails", cannotTell: "is asked by kubelet, cannot tell a holder of a spare, and answers neither",
	tick: "tick", nudge: "nudge", backOffPassed: "back-off passed", hungUp: "learns that kubelet hung up",
	starts: "starts", thaws: "thaws", killed: "is killed", term: "gets SIGTERM", freezes: "freezes", driverToggles: "its driver goes or comes",
	changes: "tells kubelet what is no longer so", slow: "looks, and is answered too late", unsure: "looks, and cannot tell", incumbentListens: "the incumbent listens",
	incumbentBinds: "the incumbent binds", incumbentStarts: "the incumbent starts: unlinks by name", incumbentTerm: "the incumbent gets SIGTERM: unlinks by name",
	incumbentKilled: "the incumbent is killed", kubeletAsksIncumbent: "kubelet asks the incumbent", kubeletConfirms: "kubelet confirms", kubeletRefuses: "kubelet refuses",
	kubeletTiresOfFrozen: "kubelet gives up waiting for a frozen instance", kubeletRestarts: "kubelet restarts",
	pathRemoved: "somebody removes the path", leaseRemoved: "somebody removes the lease file",
}

// name says in words what m does in w.
func (m move) name(w *world) string {
	if m.kind == act {
		in := &w.in[m.i]
		return fmt.Sprintf("instance %d: %s", m.i+1, doName(in.queue[0], in.mid))
	}
	switch m.kind {
	case kubeletAsks:
		return fmt.Sprintf("kubelet asks instance %d", m.i+1)
	case getsSpare, closesSpare, hearsWord, hearsGiven, isOrphaned, tiresOfTaker, learns, confirmsAndKilled, handshakeFails, cannotTell, tick, nudge, backOffPassed, hungUp, changes, slow, unsure, starts, thaws, killed, term, freezes, driverToggles:
		return fmt.Sprintf("instance %d: %s", m.i+1, moveNames[m.kind])
	}
	return moveNames[m.kind]
}

func ev(n own.News) own.Event { return own.Event{News: n} }

// moves appends to out all that can happen next.
func (w *world) moves(m *model, out []move) []move {
	for i := range w.in {
		out = w.instanceMoves(i, m, out)
	}
	switch w.inc {
	case unborn, dead:
		if w.left.Incumbents > 0 {
			out = append(out, move{kind: incumbentStarts})
		}
	case frozen:
		if w.incBound {
			out = append(out, move{kind: incumbentListens})
		} else {
			out = append(out, move{kind: incumbentBinds})
		}
	case alive:
		out = append(out, move{kind: incumbentTerm})
		if w.left.Crashes > 0 {
			out = append(out, move{kind: incumbentKilled})
		}
	}
	out = w.kubeletMoves(m, out)
	if w.left.PathRemovals > 0 && w.path != nobody {
		out = append(out, move{kind: pathRemoved})
	}
	if w.left.LeaseRemovals > 0 && w.lease {
		out = append(out, move{kind: leaseRemoved})
	}
	return out
}

func (w *world) instanceMoves(i int, m *model, out []move) []move {
	in := &w.in[i]
	add := func(k moveKind, when bool) {
		if when {
			out = append(out, move{k, uint8(i)})
		}
	}
	switch in.proc {
	case unborn: // equal until they start, so they start in order
		add(starts, w.left.Ours > 0 && (i == 0 || w.in[i-1].proc != unborn))
	case frozen:
		add(thaws, true)
		add(killed, w.left.Crashes > 0)
	case alive:
		phase, op := own.Phase(in.st.phase), own.Op(in.st.op)
		running := phase == own.Running
		add(act, in.n > 0 && m.ready(w, i))
		add(tick, in.n == 0 && running && op == own.Idle)
		add(nudge, m.nudges && running && op != own.Idle && op != own.Resting && !in.st.again)
		add(backOffPassed, in.armed)
		add(hungUp, in.hungUp)
		add(term, w.left.Terms > 0 && phase != own.Leaving && phase != own.Done)
		add(killed, w.left.Crashes > 0)
		add(freezes, w.left.Freezes > 0)
		add(driverToggles, w.left.DriverToggles > 0)
		add(changes, w.left.Changes > 0 && in.st.accepting && running && w.mine(i))
		if w.left.Slows > 0 && in.n > 0 && own.Do(in.queue[0].do) == own.Look {
			sight, _ := w.sight(i)
			add(slow, sight == own.Ours)
			add(unsure, sight != own.Absent && sight != own.Mine)
		}
		if m.shares {
			out = w.sharingMoves(i, m, out)
		}
	case dead:
	}
	return out
}

func (w *world) kubeletMoves(m *model, out []move) []move {
	k := &w.k
	if m.coarse {
		return out
	}
	if k.conn == 0 && k.want && !k.given && (!k.reg || k.fresh) {
		for i := range w.in {
			if w.in[i].proc == alive && w.mine(i) {
				out = append(out, move{kubeletAsks, uint8(i)})
			}
		}
		if w.path == incumbent && w.answers() {
			out = append(out, move{kind: kubeletAsksIncumbent})
		}
	}
	if k.conn != 0 {
		if k.conn == incumbent || w.in[k.conn-1].proc == alive {
			out = append(out, move{kind: kubeletConfirms})
			if w.left.Refusals > 0 {
				out = append(out, move{kind: kubeletRefuses})
			}
		} else {
			out = append(out, move{kind: kubeletTiresOfFrozen})
		}
	}
	if w.left.KubeletRestarts > 0 {
		out = append(out, move{kind: kubeletRestarts})
	}
	return out
}

// apply makes one move.
func (w *world) apply(mv move, m *model) error {
	i := int(mv.i)
	if mv.outside() && mv.kind != term && mv.kind != slow && mv.kind != unsure {
		w.happened()
		switch mv.kind {
		case starts, driverToggles, changes, kubeletRefuses, kubeletRestarts, thaws: // no excuse for what a leaver leaves
		default:
			w.dirty = w.dirty || w.anyLeaving()
		}
	}
	in := &w.in[i]
	switch mv.kind {
	case act:
		return m.act(w, i)
	case tick:
		return w.tell(i, ev(own.Tick))
	case nudge:
		return w.tell(i, ev(own.Nudge))
	case backOffPassed:
		in.armed = false
		in.owes = min(in.owes+1, 3)
		return w.tell(i, ev(own.AnnounceDue))
	case hungUp:
		in.hungUp = false
		w.passOn(i, own.KubeletLeft)
		return w.tell(i, ev(own.KubeletLeft))
	case starts:
		w.left.Ours--
		in.proc, in.up, in.st.shares = alive, true, m.shares
		return w.tell(i, ev(own.Start))
	case thaws:
		in.proc = alive
	case killed:
		w.left.Crashes--
		w.dies(m, i)
	case term:
		w.left.Terms--
		if !w.anyLeaving() {
			w.dirty = w.anyFrozen() || w.anyOrphan()
		}
		return w.tell(i, ev(own.Term))
	case freezes:
		w.left.Freezes--
		in.proc = frozen
		in.excused = m.shares // until its next look
		in.stalled = in.stalled || in.lock == exclusive
	case slow, unsure:
		w.left.Slows--
		in.slow = true
		w.holdOn(i, own.Unknown)
		in.excused = m.shares
		w.pop(i)
		e := own.Event{News: own.Saw, Sight: own.Silent, ID: own.SocketID{Ino: idPath}}
		if mv.kind == unsure {
			e.Sight = own.Unknown
			w.dirty = w.dirty || w.anyLeaving() // it may leave behind what it cannot see
		}
		return w.tell(i, e)
	case driverToggles:
		w.left.DriverToggles--
		in.up = !in.up
	case changes:
		w.left.Changes--
		w.k.old = true
		if m.shares { // each learns it when it does
			return nil
		}
		return w.tell(i, ev(own.Outdated))
	case pathRemoved:
		w.left.PathRemovals--
		w.unlink()
	case leaseRemoved:
		w.left.LeaseRemovals--
		w.unlinkLease()
	case getsSpare, closesSpare, hearsWord, hearsGiven, isOrphaned, tiresOfTaker, learns, confirmsAndKilled, handshakeFails, cannotTell:
		return w.applySharing(mv, m)
	default:
		return w.applyOthers(mv)
	}
	return nil
}

// applyOthers makes the moves of the incumbent, which removes by name when it starts
// and when it ends, and of kubelet.
func (w *world) applyOthers(mv move) error {
	var err error
	switch mv.kind {
	case incumbentStarts:
		w.left.Incumbents--
		w.gap = w.path != nobody
		w.unlink()
		w.inc = frozen
	case incumbentBinds:
		w.happened()
		w.dirty = w.dirty || w.anyLeaving()
		for i := range w.in {
			w.in[i].inGap = false
		}
		w.gap = false
		if w.path != nobody { // address already in use: it exits, and is restarted
			w.inc = dead
			break
		}
		w.incBound = true
		w.create(incumbent)
	case incumbentListens:
		w.inc, w.incOpen, w.incBound = alive, true, false
	case incumbentTerm:
		w.unlink()
		w.incumbentDies()
	case incumbentKilled:
		w.left.Crashes--
		w.incumbentDies()
	case kubeletAsks:
		var answer own.Do
		answer, err = w.ask(int(mv.i), ev(own.KubeletAsked))
		if answer == own.TurnAway {
			break // it tries again
		}
		w.passOn(int(mv.i), own.KubeletAsked)
		w.k.reg, w.k.fresh, w.k.conn, w.k.connOK = false, false, mv.i+1, true
	case kubeletAsksIncumbent:
		w.k.reg, w.k.fresh, w.k.conn, w.k.connOK = false, false, incumbent, true
	case kubeletConfirms:
		w.k.reg = w.k.want
		err = w.tellOwner(own.KubeletConfirmed)
		w.k.conn = 0
	case kubeletRefuses:
		w.left.Refusals--
		w.k.given = w.k.never && !w.k.fresh
		err = w.tellOwner(own.KubeletRefused)
		if w.k.conn == incumbent { // it exits at once, and leaves the path
			w.incumbentDies()
		}
		w.k.conn = 0
	case kubeletTiresOfFrozen:
		w.in[w.k.conn-1].hungUp = w.k.connOK
		w.k.conn, w.k.reg, w.k.given = 0, false, w.k.never && !w.k.fresh
	case kubeletRestarts:
		w.left.KubeletRestarts--
		if c := w.k.conn; c != 0 && c != incumbent {
			w.in[c-1].hungUp = w.k.connOK
		}
		w.k = kube{never: w.k.never, old: w.k.old, want: w.path != nobody, fresh: w.path != nobody}
	}
	return err
}

func (w *world) anyLeaving() bool {
	for i := range w.in {
		if w.lives(i) && (own.Phase(w.in[i].st.phase) == own.Leaving || own.Stage(w.in[i].st.stage) != own.Staying) {
			return true
		}
	}
	return false
}

func (w *world) anyFrozen() bool {
	for i := range w.in {
		if w.in[i].proc == frozen {
			return true
		}
	}
	return false
}

// anyOrphan says that an outsider removed the lease file and some holder has not
// locked the new one yet, which it does within a second.
func (w *world) anyOrphan() bool {
	for i := range w.in {
		if w.in[i].lock == orphanShared {
			return true
		}
	}
	return false
}

func (w *world) incumbentDies() {
	w.inc, w.incOpen, w.incBound = dead, false, false
	if w.k.conn == incumbent {
		w.k.conn, w.k.reg, w.k.given = 0, false, w.k.never && !w.k.fresh
	}
}

func (w *world) tellOwner(n own.News) error {
	c := w.k.conn
	if c == incumbent || c == 0 || !w.k.connOK {
		return nil
	}
	w.passOn(int(c-1), n)
	return w.tell(int(c-1), ev(n))
}
