package ownership

// leaving takes an instance that was asked to end through its last steps, each at
// most once, so that it ends whatever its peers do.
func leaving(s State, e Event) (State, []Action) {
	if s.Shares && e.News == KubeletAsked { // guard: leaver-turns-away (I3): it could tell nobody
		return s, []Action{{Do: TurnAway}}
	}
	if s.Op == Idle || s.Op != endedBy(e.News) {
		if e.News >= Tick {
			return s, nil // stop reacting: whatever happens now is for those who stay
		}
		return s, fault()
	}
	if s.Stage == Staying { // the operation that was in flight when the signal came
		s.Accepting = s.Accepting || e.News == Published || e.News == Adopted || e.News == Resumed
		return sayGoodbye(s)
	}
	switch e.News {
	case Saw:
		return lastSaw(s, e)
	case Rested:
		return look(s)
	case Granted:
		s.Lease, s.Stage = Exclusive, LastLook
		return look(s)
	case NotGranted:
		return notGranted(s)
	case Removed, NotRemoved:
		return tidy(s)
	case Stopped:
		if s.Stage == Parting { // guard: claim-after-stop (I4)
			return begin(s, Claiming, Action{Do: Claim, Brief: true})
		}
		return exit(s, Left)
	default:
		return s, fault()
	}
}

// sayGoodbye lets the others know, and gives up the shared lock: from here on a
// peer may find itself alone.
func sayGoodbye(s State) (State, []Action) {
	s = State{Phase: Leaving, Stage: FirstLook, Shares: s.Shares, Accepting: s.Accepting}
	s, actions := look(s)
	return s, append([]Action{{Do: Goodbye}}, actions...)
}

// lastSaw judges one look of an instance that leaves.
func lastSaw(s State, e Event) (State, []Action) {
	mine := e.Sight == Mine
	switch e.Sight {
	case Mine:
		s.Seen = Sighting{Mine, e.ID, 1}
	case Refused:
		if s.Seen.Sight == Mine && s.Seen.ID == e.ID && !s.Accepting {
			mine = true // nobody listens since this instance stopped
			break
		}
		s.Seen = agree(s.Seen, e)
		if s.Seen.Times < deadLooks { // guard: dead-twice (I1)
			return begin(s, Resting, Action{Do: Rest, Pause: DeadPause})
		}
	case Absent, Ours, Incumbent, Silent, Unknown, NotSocket, DirGone:
		s.Seen = Sighting{e.Sight, e.ID, 1}
	}
	removable := mine || e.Sight == Refused // guard: only-mine-or-dead (I1)
	if s.Stage == LastLook {
		if removable && s.Lease == Exclusive {
			s.Stage = Emptying
			return begin(s, Removing, Action{Do: Remove, ID: e.ID})
		}
		if e.Sight == Ours { // guard: yield-to-a-leaver (I4)
			return yield(s)
		}
		return tidy(s)
	}
	if removable {
		return begin(s, Claiming, Action{Do: Claim, Patient: true}) // guard: remove-needs-the-lease (I2)
	}
	switch e.Sight {
	case Absent, Incumbent, Unknown, NotSocket: // nothing to remove, but nobody of ours may be left to take the lease file away
		return begin(s, Claiming, Action{Do: Claim})
	case Ours, Silent, DirGone, Mine, Refused:
	}
	return stop(s, Closing)
}

// yield is for an instance that was granted the lease and finds that another answers.
// That one holds no lease, so it is leaving too, and may just have been refused the
// lease because of this one: give it back, and look whether the path was left to rot.
func yield(s State) (State, []Action) {
	s.Lease, s.Stage = NoLease, FirstLook
	s, actions := look(s)
	return s, append([]Action{{Do: RemoveLease}}, actions...)
}

// notGranted: somebody of ours lives, or was still there at the last try. If the path
// is this instance's to remove it tries once more when it no longer serves, since a
// peer that left a moment later has seen an answer there and has gone.
func notGranted(s State) (State, []Action) {
	mineOrDead := s.Seen.Sight == Mine || s.Seen.Sight == Refused
	switch {
	case s.Stage == Parting:
		return exit(s, Left)
	case mineOrDead:
		return stop(s, Parting)
	}
	return stop(s, Closing)
}

// tidy removes the lease file, which goes last, and stops.
func tidy(s State) (State, []Action) {
	if s.Lease != Exclusive {
		return stop(s, Closing)
	}
	s.Lease = NoLease
	s, actions := stop(s, Closing)
	return s, append([]Action{{Do: RemoveLease}}, actions...)
}

func stop(s State, stage Stage) (State, []Action) {
	s.Stage, s.Accepting = stage, false
	return begin(s, Stopping, Action{Do: StopServing})
}
