package ownership

// How often looks must agree before an instance acts on what it sees at a path that
// it does not own. One look proves little: a starting incumbent removes and binds
// in two steps, a socket refuses between bind and listen, and a stopped process
// still lets clients connect.
const (
	absentLooks = 2
	deadLooks   = 2
	silentLooks = 3
)

// Step returns what an instance believes after e, and what it has to do now.
func Step(s State, e Event) (State, []Action) {
	switch s.Phase {
	case Waiting:
		return waiting(s, e)
	case Running:
		return running(s, e)
	case Leaving:
		return leaving(s, e)
	case Done:
	}
	return s, nil // late news is no fault: the process is on its way out
}

func waiting(s State, e Event) (State, []Action) {
	switch {
	case e.News == Term:
		return exit(s, Left)
	case e.News == Start && s.Op == Idle, e.News == Rested && s.Op == Resting:
		return begin(s, AskingDriver, Action{Do: AskDriver})
	case e.News == DriverDown && s.Op == AskingDriver:
		return begin(s, Resting, Action{Do: Rest, Pause: RetryPause})
	case e.News == DriverUp && s.Op == AskingDriver:
		s.Phase, s.Owed = Running, true
		return begin(s, Joining, Action{Do: Join, Patient: true})
	case e.News == Tick, e.News == Nudge:
		return s, nil
	}
	return s, fault()
}

func running(s State, e Event) (State, []Action) {
	switch e.News {
	case Tick, Nudge:
		return noticed(s, e.News)
	case KubeletAsked, KubeletConfirmed, KubeletRefused, KubeletLeft, AnnounceDue, Outdated:
		return heard(s, e.News)
	case SpareHeld, SpareLost, Orphaned, GiveAsked, Given, NotGiven:
		return shared(s, e.News)
	case RefusedTooLong:
		return exit(s, GivenUp)
	case Term:
		s = State{Phase: Leaving, Op: s.Op, Shares: s.Shares, Accepting: s.Accepting}
		if s.Op == Idle {
			return sayGoodbye(s)
		}
		return s, nil // the caller cuts the operation short; its outcome comes first
	default: // the outcome of an operation
	}
	if s.Op != endedBy(e.News) {
		return s, fault()
	}
	switch e.News {
	case LeaseHeld, LeaseMissed:
		return next(settle(s, e))
	case Saw:
		return saw(s, e)
	case Rested:
		return next(s)
	case DriverUp:
		return publish(s)
	case DriverDown, PublishFailed:
		return begin(s, Resting, Action{Do: Rest, Pause: RetryPause})
	case Published:
		return idle(settle(s, e))
	case Adopted, NotAdopted, Deferred, Resumed, NotResumed:
		return took(s, e.News)
	case PathTaken: // another answers there, or died there: either way the start has had its turn
		s.Owed, s.Seen = false, Sighting{}
		return look(s)
	case PathChanged: // whoever is there now may hand over what this one did not
		s.Seen, s.Alone = Sighting{}, false // guard: ask-whoever-came (I9)
		return look(s)
	case PathUnfit:
		return unfit(s, e.Sight)
	default:
		return s, fault()
	}
}

// noticed reacts to a hint that the path may have changed. Hints are only hints: the
// look decides.
func noticed(s State, n News) (State, []Action) {
	switch {
	case s.Op == Resting:
		return s, nil // a look follows anyway
	case s.Op != Idle:
		s.Again = true
		return s, nil
	case n == Tick:
		return begin(s, Joining, Action{Do: Join})
	}
	return look(s)
}

// heard takes in what kubelet said to the socket on which this instance accepts.
func heard(s State, n News) (State, []Action) {
	if s.Op == Adopting && n == KubeletAsked { // guard: turn-away-while-adopting (I3): the giver does not know yet
		return s, []Action{{Do: TurnAway}}
	}
	if !s.Accepting {
		return overheard(s, n)
	}
	if s.Giving && n == KubeletAsked { // guard: turn-away-while-giving (I9)
		return s, []Action{{Do: TurnAway}}
	}
	if s.Shares && s.Stale && s.Op != Resting && n == KubeletAsked { // guard: turn-away-before-announcing (I3): somebody with a spare may not have been told
		return s, []Action{{Do: TurnAway}}
	}
	switch n {
	case KubeletAsked:
		s.Kubelet, s.Due = Asked, false
	case KubeletConfirmed:
		s.Kubelet, s.Due = Confirmed, false
	case KubeletRefused:
		s.Kubelet = Refusing
		return s, []Action{{Do: BackOff}}
	case KubeletLeft:
		if s.Kubelet != Asked {
			return s, nil
		}
		s.Kubelet = Refusing
		return s, []Action{{Do: BackOff}}
	case AnnounceDue:
		if s.Kubelet != Refusing { // guard: announce-only-unconfirmed (I6)
			return s, nil
		}
		s.Due = true
		return noticed(s, Nudge)
	case Outdated:
		s.Stale = true
		return noticed(s, Nudge)
	default:
	}
	return s, nil
}

// saw judges one look of an instance that runs.
func saw(s State, e Event) (State, []Action) {
	switch e.Sight {
	case NotSocket, DirGone:
		return unfit(s, e.Sight)
	case Mine:
		s.Owed, s.Seen = false, Sighting{Mine, e.ID, 1}
		if (s.Due || s.Stale) && !s.Giving { // guard: give-or-announce (I9): the newcomer learns it too
			return askDriver(s)
		}
		return idle(s)
	case Ours, Incumbent:
		s.Seen = Sighting{e.Sight, e.ID, 1}
		if s.Owed { // guard: never-replace-an-answer (I6)
			return askDriver(s)
		}
		return standBy(s)
	case Absent, Refused, Silent:
		s.Seen = agree(s.Seen, e)
		if e.Sight == Silent && heir(s) { // guard: resume-not-publish (I9)
			return resume(s)
		}
		if sure(s) {
			return askDriver(s)
		}
		return begin(s, Resting, Action{Do: Rest, Pause: pauseFor(e.Sight)})
	case Unknown:
	}
	s.Seen = Sighting{e.Sight, e.ID, 1}
	switch {
	case s.Owed && e.ID != SocketID{}: // whoever serves there: the start takes over
		return askDriver(s)
	case s.Owed:
		return begin(s, Resting, Action{Do: Rest, Pause: RetryPause})
	}
	return idle(s)
}

// sure says whether the looks so far allow to publish over what was seen. At its
// start an instance takes over whoever serves, so it need not know that nobody does;
// but an absent path may be an incumbent between its remove and its bind.
func sure(s State) bool {
	switch s.Seen.Sight {
	case Absent:
		return s.Seen.Times >= absentLooks // guard: absent-twice (an incumbent's start)
	case Refused:
		return s.Owed || s.Seen.Times >= deadLooks
	case Silent:
		return s.Owed || s.Seen.Times >= silentLooks
	case Unknown, Mine, Ours, Incumbent, NotSocket, DirGone:
	}
	return false
}

// askDriver begins a publication: an instance whose driver does not answer is not
// willing, and leaves the path to others.
func askDriver(s State) (State, []Action) {
	return begin(s, AskingDriver, Action{Do: AskDriver})
}

// publish puts a new socket over exactly what was judged.
func publish(s State) (State, []Action) {
	if s.Seen.Sight == Mine && !s.Due && !s.Stale { // guard: still-due (I6): kubelet has called meanwhile
		return idle(s)
	}
	if s.Seen.Sight == Silent && heir(s) { // guard: resume-after-all (I9)
		return resume(s)
	}
	if s.Shares && s.Owed && s.Seen.Sight == Ours && !s.Alone { // guard: adopt-first (I9)
		return begin(s, Adopting, Action{Do: Adopt, ID: s.Seen.ID})
	}
	return begin(s, Publishing, Action{Do: Publish, ID: s.Seen.ID})
}

// standBy yields to the one that answers.
func standBy(s State) (State, []Action) {
	var letGo []Action
	if s.Accepting {
		s.Accepting, s.Kubelet, s.Due, s.Stale, s.Giving = false, Quiet, false, false, false // guard: let-go (one acceptor)
		letGo = []Action{{Do: LetGo}}
	}
	s, more := idle(s)
	return s, append(letGo, more...)
}

func unfit(s State, what Sight) (State, []Action) {
	if what == DirGone {
		return exit(s, LostDir)
	}
	return exit(s, UnfitPath)
}

// settle takes in the outcome of an operation that changes what this instance has.
func settle(s State, e Event) State {
	switch e.News {
	case LeaseHeld:
		s.Lease = Shared
	case LeaseMissed:
		s.Lease = NoLease
	case Published:
		s.Accepting, s.Owed, s.Spare, s.Orphan, s.Giving = true, false, false, false, false
		s.Seen, s.Kubelet, s.Due, s.Stale = Sighting{}, Quiet, false, false
	default:
	}
	return s
}

// agree counts how many looks in a row found the same. A socket that has answered
// and now refuses is dead at the first look: refusing for a moment is for those that
// have bound and do not listen yet.
func agree(before Sighting, e Event) Sighting {
	answered := before.Sight == Ours || before.Sight == Incumbent
	if answered && e.Sight == Refused && before.ID == e.ID {
		return Sighting{Refused, e.ID, deadLooks}
	}
	if before.Sight != e.Sight || before.ID != e.ID {
		return Sighting{e.Sight, e.ID, 1}
	}
	if before.Times < silentLooks {
		before.Times++
	}
	return before
}

func pauseFor(what Sight) Pause {
	switch what {
	case Absent:
		return AbsentPause
	case Refused:
		return DeadPause
	case Silent:
		return SilentPause
	case Unknown, Mine, Ours, Incumbent, NotSocket, DirGone:
	}
	return RetryPause
}

// idle ends an operation; if something happened meanwhile it follows.
func idle(s State) (State, []Action) {
	if heir(s) {
		return resume(s)
	}
	if s.Again {
		return look(s)
	}
	s.Op = Idle
	return s, nil
}

// next looks, unless it is known what to do: a look that nobody answers takes long.
func next(s State) (State, []Action) {
	if heir(s) { // guard: resume-at-once (I9)
		return resume(s)
	}
	return look(s)
}

func look(s State) (State, []Action) {
	s.Again = false
	return begin(s, Looking, Action{Do: Look, Brief: s.Phase == Leaving})
}

func begin(s State, op Op, a Action) (State, []Action) {
	s.Op = op
	return s, []Action{a}
}

func exit(s State, why Why) (State, []Action) {
	return State{Phase: Done, Stage: s.Stage}, []Action{{Do: Exit, Why: why}}
}

func fault() []Action { return []Action{{Do: Fault}} }

// endedBy is the operation that n ends, Idle if it ends none.
func endedBy(n News) Op {
	switch n {
	case DriverUp, DriverDown:
		return AskingDriver
	case LeaseHeld, LeaseMissed:
		return Joining
	case Saw:
		return Looking
	case Rested:
		return Resting
	case Published, PathTaken, PathChanged, PathUnfit, PublishFailed:
		return Publishing
	case Granted, NotGranted:
		return Claiming
	case Removed, NotRemoved:
		return Removing
	case Stopped:
		return Stopping
	case Adopted, NotAdopted, Deferred:
		return Adopting
	case Resumed, NotResumed:
		return Resuming
	case Start, Tick, Nudge, KubeletAsked, KubeletConfirmed, KubeletRefused, KubeletLeft, AnnounceDue, Outdated, SpareHeld, SpareLost, Orphaned, GiveAsked, Given, NotGiven, RefusedTooLong, Term:
	}
	return Idle
}
