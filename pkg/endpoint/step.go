package endpoint

// deadLooks is how often in a row an inode that was never seen to listen has to
// refuse, 100 ms apart, before it counts as dead: a driver binds first and listens
// then. One that has listened is dead as soon as it refuses.
const deadLooks = 2

// Step returns what an instance believes after e, and what it has to do now.
func Step(s State, e Event) (State, []Action) {
	if s.Ended {
		return s, nil
	}
	switch e.News {
	case Hint:
		return noticed(s)
	case Rested:
		s.Rested = s.Op == Idle
		return noticed(s)
	case Accepts, AcceptsNot:
		s.Turner = e.News == Accepts
		return noticed(s)
	case LeavesNow, LeavesAsLast:
		s.Leave = Leaves
		if e.News == LeavesAsLast {
			s.Leave = LeavesLast
		}
		return noticed(s)
	default: // the outcome of an operation
	}
	if s.Op != endedBy(e.News) {
		return s, []Action{{Do: Fault}}
	}
	switch e.News {
	case Looked:
		s.View, s.Done = Remember(s.View, e.View, s.Rested), Nothing
		s.Rested = false
	case Pinned:
		s.View.Named = true
	case Answered:
		return answered(s, e.ID)
	case Turned:
		s.View.Link = s.Asked
	default: // it did not work: go on, and try again in the next round
	}
	return proceed(s)
}

func noticed(s State) (State, []Action) {
	if s.Op != Idle {
		s.Again = true
		return s, nil
	}
	return look(s)
}

func look(s State) (State, []Action) {
	s.Again = false
	return begin(s, Looking, Action{Do: Look})
}

func begin(s State, op Op, a Action) (State, []Action) {
	s.Op = op
	return s, []Action{a}
}

// proceed does what is left to do in this round: name csi.sock's inode, turn the
// symlink, remove names on which nobody listens.
func proceed(s State) (State, []Action) {
	if s.Done < HasPinned {
		s.Done = HasPinned
		if v := s.View.Socket; v.ID != (ID{}) && !v.Dead() && !s.View.Named && s.Leave == Stays { // guard: no-name-for-the-dead (I10)
			return begin(s, Pinning, Action{Do: Pin, ID: s.View.Socket.ID})
		}
	}
	if s.Done < HasTurned {
		s.Done = HasTurned
		if op, a := aim(&s); op != Idle {
			return begin(s, op, a)
		}
	}
	if id, ok := takeDead(&s.View); ok {
		return begin(s, Removing, Action{Do: Remove, ID: id})
	}
	return rest(s)
}

// rest ends a round.
func rest(s State) (State, []Action) {
	if s.Again {
		return look(s)
	}
	s.Op = Idle
	switch {
	case suspects(s.View):
		return s, []Action{{Do: Soon}}
	case s.Leave != Stays:
		s.Ended = true
		return s, []Action{{Do: End}}
	case s.Turner && spares(s.View):
		return s, []Action{{Do: Watch}}
	}
	return s, nil
}

// aim decides where the symlink ought to lead. It returns Idle if it leads there, and
// otherwise the operation that comes next: turning it, or asking who answers.
func aim(s *State) (Op, Action) {
	v := &s.View
	leads := v.Link.Kind == ToName && find(v, v.Link.ID).Alive() // to a living driver, under a second name
	socket := Target{Kind: ToSocket}
	switch {
	case v.Link.Kind == Foreign:
		return Idle, Action{}
	case s.Leave == LeavesLast:
		if v.Link.Kind == NoLink || v.Link == socket || leads && !v.Socket.Alive() {
			return Idle, Action{}
		}
		return s.turn(socket)
	case s.Leave != Stays:
		return Idle, Action{}
	case v.Link.Kind == NoLink && !s.Turner: // whoever is first makes it; NOREPLACE decides
		return s.turn(socket)
	case !s.Turner: // guard: only-the-acceptor-turns (I10)
		return Idle, Action{}
	case v.Link == socket && (v.Socket.Alive() || unsure(v.Socket)):
		return Idle, Action{}
	case v.Link.Kind == NoLink && v.Socket.Alive():
		return s.turn(socket)
	case leads && !v.Socket.Alive():
		return Idle, Action{}
	}
	ask := Action{Do: Ask}
	n := 0
	if v.Socket.Alive() {
		ask.IDs[n] = v.Socket.ID
		n++
	}
	if s.Asked = v.Link; !leads {
		s.Asked = socket
		for _, o := range v.Others {
			if o.ID != v.Socket.ID && o.Alive() {
				ask.IDs[n] = o.ID
				n++
			}
		}
	}
	if n == 0 {
		return s.turn(s.Asked)
	}
	return Asking, ask
}

// turn is the operation that turns the symlink to where it does not lead yet.
func (s *State) turn(to Target) (Op, Action) {
	if s.View.Link == to {
		return Idle, Action{}
	}
	s.Asked = to
	return Turning, Action{Do: Turn, From: s.View.Link, To: to}
}

// answered turns the symlink to who answered, if anybody did.
func answered(s State, id ID) (State, []Action) {
	to := s.Asked
	switch id {
	case ID{}: // guard: only-to-an-answer (I10)
	case s.View.Socket.ID:
		to = Target{Kind: ToSocket}
	default:
		to = Target{Kind: ToName, ID: id}
	}
	if !s.Turner || s.Leave != Stays {
		return proceed(s)
	}
	if op, a := s.turn(to); op != Idle {
		return begin(s, op, a)
	}
	return proceed(s)
}

// takeDead takes the first inode off the list on which nobody listens.
func takeDead(v *View) (ID, bool) {
	for i, o := range v.Others {
		if o.Dead() { // guard: only-the-dead-go (I10)
			copy(v.Others[i:], v.Others[i+1:])
			v.Others[Most-1] = Inode{}
			return o.ID, true
		}
	}
	return ID{}, false
}

// Remember carries over from the last look what is known about each
// inode; rested says that 100 ms lie between the two.
func Remember(before, now View, rested bool) View {
	now.Socket = judge(find(&before, now.Socket.ID), now.Socket, rested)
	for i, o := range now.Others {
		now.Others[i] = judge(find(&before, o.ID), o, rested)
	}
	return now
}

func judge(before, now Inode, rested bool) Inode {
	now.Heard, now.Refusals = before.Heard, 0
	switch now.Life {
	case Listens, Busy:
		now.Heard = true
	case Refuses:
		now.Refusals = max(before.Refusals, 1)
		if rested && before.Refusals > 0 { // guard: dead-twice (I10)
			now.Refusals = deadLooks
		}
	case Unheard, Gone, Denied, Unclear:
	}
	return now
}

// find returns what is known about id; the zero Inode if nothing is.
func find(v *View, id ID) Inode {
	if id == (ID{}) {
		return Inode{}
	}
	if v.Socket.ID == id {
		return v.Socket
	}
	for _, o := range v.Others {
		if o.ID == id {
			return o
		}
	}
	return Inode{}
}

// Alive says that somebody listens on i.
func (i Inode) Alive() bool { return i.Life == Listens || i.Life == Busy }

// Dead says that nobody listens on i, nor will.
func (i Inode) Dead() bool {
	return i.Life == Refuses && (i.Heard || i.Refusals >= deadLooks)
}

// unsure: it may be about to listen, or cannot be told.
func unsure(i Inode) bool { return i.ID != (ID{}) && !i.Alive() && !i.Dead() && i.Life != Gone }

// suspects says that an inode refuses of which one more look will tell more.
func suspects(v View) bool {
	suspect := func(i Inode) bool { return i.Life == Refuses && !i.Dead() }
	for _, o := range v.Others {
		if suspect(o) {
			return true
		}
	}
	return suspect(v.Socket)
}

// spares says that a driver lives beside the one that the symlink leads to.
func spares(v View) bool {
	at := v.Link.ID
	if v.Link.Kind == ToSocket {
		at = v.Socket.ID
	}
	for _, o := range v.Others {
		if o.ID != at && o.Alive() {
			return true
		}
	}
	return false
}

// endedBy is the operation that n ends, Idle if it ends none.
func endedBy(n News) Op {
	switch n {
	case Looked:
		return Looking
	case Pinned, NotPinned:
		return Pinning
	case Answered:
		return Asking
	case Turned, NotTurned:
		return Turning
	case Removed, NotRemoved:
		return Removing
	case Hint, Rested, Accepts, AcceptsNot, LeavesNow, LeavesAsLast:
	}
	return Idle
}
