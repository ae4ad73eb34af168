package ownership

// Instances share one listening socket: one accepts on it, the others hold copies,
// their spares, and kubelet sees nothing of who does. A newcomer adopts the listener
// instead of publishing another, if kubelet would learn nothing new; when the acceptor
// ends, the newest spare resumes.

// shared takes in news of the others with whom a listener is shared.
func shared(s State, n News) (State, []Action) {
	switch n {
	case GiveAsked:
		if !s.Accepting || s.Giving { // guard: one-newcomer-after-another (I9)
			return s, []Action{{Do: Defer}}
		}
		if s.Kubelet != Confirmed || s.Due || s.Stale { // guard: give-only-confirmed (I3)
			return s, []Action{{Do: Decline}}
		}
		s.Giving = true
		return s, []Action{{Do: Give}}
	case NotGiven:
		s.Giving = false
		if s.Due || s.Stale { // guard: announce-what-waited (I3)
			return noticed(s, Nudge)
		}
	case Given:
		if !s.Giving {
			return s, nil // another listener was published meanwhile
		}
		s.Giving, s.Accepting, s.Spare, s.Due, s.Stale = false, false, true, false, false // guard: yield-what-waited (I9): the newcomer learns it too
		return s, []Action{{Do: Yield}}
	case SpareHeld:
		if !s.Accepting {
			s.Spare, s.Kubelet = true, Quiet // the acceptor tells
		}
	case SpareLost:
		s.Spare, s.Orphan = false, false
	case Orphaned:
		if !s.Spare || s.Accepting {
			return noticed(s, Nudge)
		}
		s.Orphan = true
		if s.Op == Idle {
			return resume(s)
		}
		// The caller cuts the operation short, and its outcome comes first.
	default:
	}
	return s, nil
}

// overheard takes in what the acceptor says kubelet said to it. A call of kubelet's own
// that comes to a connection which this instance accepted before it gave the listener
// away is turned away: kubelet tries again and finds the acceptor.
func overheard(s State, n News) (State, []Action) {
	if !s.Spare {
		return s, nil // the socket has been let go meanwhile
	}
	switch n {
	case KubeletAsked:
		s.Kubelet = Asked
	case KubeletConfirmed:
		s.Kubelet = Confirmed
	case KubeletRefused, KubeletLeft:
		s.Kubelet = Refusing
	default:
	}
	return s, nil
}

// heir says that this instance is to go on with the listener of one that has ended.
func heir(s State) bool { return s.Orphan && s.Spare && !s.Accepting }

func resume(s State) (State, []Action) {
	s.Orphan = false
	return begin(s, Resuming, Action{Do: Resume})
}

// took goes on after an attempt to accept on a listener of somebody else's making.
func took(s State, n News) (State, []Action) {
	switch n {
	case Adopted:
		s.Accepting, s.Owed, s.Spare, s.Kubelet = true, false, false, Confirmed
		s.Seen = Sighting{}
		return look(s)
	case Resumed:
		s.Accepting, s.Owed, s.Spare = true, false, false
		if s.Kubelet != Confirmed { // guard: resume-unconfirmed (I3): kubelet may have given up on a call to the one that ended
			s.Kubelet, s.Due = Refusing, true
		}
		return look(s)
	case NotResumed:
		s.Spare = false
		return look(s)
	case Deferred: // guard: ask-again (I9)
		return begin(s, Resting, Action{Do: Rest, Pause: AbsentPause})
	default: // NotAdopted
		s.Alone = true
		return publish(s)
	}
}
