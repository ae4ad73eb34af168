package ownership_test

import (
	"errors"
	"fmt"

	own "github.com/holdfast-csi/node-driver-registrar/pkg/ownership"
)

// model is the world's mechanics, with the leaves' guards that a test may take out.
type model struct {
	nudges     bool
	coarse     bool // no kubelet (who shares: one that confirms at once), and joining the lease is one step: for three instances
	warm       int
	noThanks   bool // a newcomer answers kubelet before the giver has yielded
	noVoid     bool // who is not the heir goes on believing what it was told
	hasty      bool // who is not the heir does not wait for it
	shares     bool // listeners are handed over
	noWitness  bool // Claim ignores held connections
	noVerify   bool // Join does not check that the locked file still has the name
	noRecheck  bool // Remove does not look once more
	noNoRepl   bool // Publish renames over whatever has taken an absent path
	overLetter bool // Publish renames without a last look
}

// ready says whether the first action of i can be carried out now.
func (m *model) ready(w *world, i int) bool {
	a := w.in[i].queue[0]
	if own.Do(a.do) == own.Look && w.shares && !w.heirIsDue(m, i) {
		return false
	}
	if own.Do(a.do) == own.Adopt && w.in[i].mid == 3 && !w.in[i].share.thanked {
		j := w.giver(i)
		return j < 0 || w.in[j].proc == frozen
	}
	if own.Do(a.do) == own.Rest { // an incumbent's start takes much less than these pauses
		switch own.Pause(a.pause) {
		case own.AbsentPause:
			return !w.gap
		case own.DeadPause:
			return !w.incBound
		}
	}
	if own.Do(a.do) == own.Join && a.patient && (m.coarse || w.in[i].mid == 1) && w.in[i].lock == unlocked {
		for j := range w.in { // it has a second, and only a frozen holder takes longer
			if j != i && w.in[j].lock == exclusive && w.in[j].proc == alive {
				return false
			}
		}
	}
	return true
}

// act carries out one system call of the first action of i.
func (m *model) act(w *world, i int) error {
	in := &w.in[i]
	a := in.queue[0]
	done := func(e own.Event) error { w.pop(i); return w.tell(i, e) }
	switch own.Do(a.do) {
	case own.AskDriver:
		in.willing = in.up
		if in.up {
			return done(ev(own.DriverUp))
		}
		return done(ev(own.DriverDown))
	case own.Join:
		return m.join(w, i, done)
	case own.Look:
		sight, id := w.sight(i)
		if own.Phase(in.st.phase) == own.Running {
			w.holdOn(i, sight)
		}
		in.slow = false
		in.inGap = sight == own.Absent && w.gap
		in.misjudged = sight == own.Refused && w.path == incumbent && w.incBound
		if err := done(own.Event{News: own.Saw, Sight: sight, ID: own.SocketID{Ino: uint64(id)}}); err != nil {
			return err
		}
		if other := sight == own.Ours || sight == own.Incumbent; other && in.st.accepting && own.Phase(in.st.phase) == own.Running {
			return fmt.Errorf("instance %d saw another's answer, and still accepts", i+1)
		}
		return nil
	case own.Rest:
		return done(ev(own.Rested))
	case own.Publish:
		return m.publish(w, i, a, done)
	case own.Claim:
		return m.claim(w, i, done)
	case own.Remove:
		return m.remove(w, i, a, done)
	case own.StopServing:
		if in.open {
			w.closeListener(uint8(i + 1))
		}
		return done(ev(own.Stopped))
	case own.LetGo:
		if in.open {
			w.closeListener(uint8(i + 1))
		}
	case own.Goodbye:
		in.lock, in.holds = unlocked, 0
		w.hangUp(m, i)
	case own.RemoveLease:
		if in.lock == exclusive {
			w.unlinkLease()
		}
		in.lock = unlocked
	case own.Exit:
		return m.exits(w, i, own.Why(a.why))
	case own.Adopt:
		return m.adopt(w, i, a, done)
	case own.Resume:
		return w.resume(i, done)
	default:
	}
	w.pop(i)
	if in.n == 0 && in.open && !in.st.accepting {
		return fmt.Errorf("instance %d has let go, and its listener is still open", i+1)
	}
	return nil
}

func (m *model) exits(w *world, i int, why own.Why) error {
	wasLeaving := own.Stage(w.in[i].st.stage) != own.Staying
	w.dies(m, i)
	if !wasLeaving || why != own.Left || w.dirty {
		return nil
	}
	for j := range w.in {
		if w.lives(j) {
			return nil
		}
	}
	if w.path == ours && w.inc != frozen {
		return errors.New("violates I4: the last instance has left and its registration socket is still there")
	}
	if w.lease {
		return errors.New("violates I4: the last instance has left and the lease file is still there")
	}
	return nil
}

func (m *model) join(w *world, i int, done func(own.Event) error) error {
	in := &w.in[i]
	if in.mid == 0 && !m.coarse { // open, creating
		w.lease = true
		in.mid = 1
		return nil
	}
	if m.coarse || !w.lease && !m.noVerify { // the name went between open and lock: open again
		w.lease = true
	}
	for j := range w.in {
		if j != i && w.in[j].lock == exclusive {
			return done(ev(own.LeaseMissed))
		}
	}
	in.lock, in.exposed = shared, false
	if !w.lease {
		in.lock = strayShared
	}
	return done(ev(own.LeaseHeld))
}

func (m *model) publish(w *world, i int, a packedAction, done func(own.Event) error) error {
	in := &w.in[i]
	if in.mid == 0 && !m.overLetter {
		switch {
		case a.id == idNone && w.path != nobody && !m.noNoRepl:
			return done(ev(own.PathTaken))
		case a.id != idNone && a.id != idPath:
			return done(ev(own.PathChanged))
		case a.id != idNone:
			in.mid = 1
			return nil
		}
	}
	if in.owes == 0 {
		return fmt.Errorf("violates I6: instance %d publishes and nothing has happened", i+1)
	}
	if err := w.checkPublish(i, a); err != nil {
		return err
	}
	in.owes--
	in.willing = false
	w.letGoOfSpares(i)
	w.closeListener(uint8(i + 1))
	w.create(ours)
	in.open, in.at = true, true
	if err := done(ev(own.Published)); err != nil || !m.coarse || !m.shares {
		return err
	}
	return w.tell(i, ev(own.KubeletConfirmed))
}

// checkPublish holds the rules of publishing against what instance i is about to do.
func (w *world) checkPublish(i int, a packedAction) error {
	in := &w.in[i]
	others := w.answers() && !w.mine(i)
	switch {
	case !in.willing:
		return fmt.Errorf("violates I3: instance %d publishes and its driver has not answered", i+1)
	case in.inGap && w.gap && w.in[1].proc == unborn: // with a second instance the two looks may have seen two absences
		return fmt.Errorf("instance %d gets in the way of an incumbent that starts", i+1)
	case in.misjudged && !in.starting:
		return fmt.Errorf("violates I1: instance %d replaces a socket that is about to listen", i+1)
	case others && !in.starting && a.id == idNone:
		return fmt.Errorf("violates I6: instance %d replaces an answering socket after its start", i+1)
	case others && !in.starting && in.slow:
		return fmt.Errorf("violates I6: instance %d replaces a socket for one slow answer", i+1)
	case others && !in.starting && in.mid == 0:
		return fmt.Errorf("violates I6: instance %d replaces a socket that it has not judged", i+1)
	}
	return w.checkQuiet(i)
}

func (m *model) claim(w *world, i int, done func(own.Event) error) error {
	in := &w.in[i]
	w.lease = true
	for j := range w.in {
		if j == i {
			continue
		}
		if l := w.in[j].lock; l == shared || l == exclusive {
			return done(ev(own.NotGranted))
		}
		if w.in[j].holds == uint8(i+1) && !m.noWitness {
			return done(ev(own.NotGranted))
		}
	}
	for j := range w.in {
		w.in[j].early = w.in[j].holds == uint8(i+1)
	}
	in.lock = exclusive
	return done(ev(own.Granted))
}

func (m *model) remove(w *world, i int, a packedAction, done func(own.Event) error) error {
	in := &w.in[i]
	if in.mid == 0 && !m.noRecheck {
		if a.id != idPath {
			return done(ev(own.NotRemoved))
		}
		in.mid = 1
		return nil
	}
	if a.id != idPath && in.mid == 0 && w.path != nobody {
		return fmt.Errorf("violates I1: instance %d removes a socket that it has not judged", i+1)
	}
	if err := w.checkUnlink(i); err != nil {
		return err
	}
	w.unlink()
	return done(ev(own.Removed))
}

// checkUnlink holds I1, I2 and I5 against the unlink that instance i is about to do.
// Three windows are excused here and nowhere else: an incumbent that binds between
// the last look and the unlink, one of ours that went on without the lease because
// this leaver was frozen exactly here, and an outsider who removed the lease file
// within the last second, before its holders could lock a new one.
func (w *world) checkUnlink(i int) error {
	if l := w.in[i].lock; l != exclusive && l != orphanExclusive {
		return fmt.Errorf("violates I2: instance %d removes the path without the lease", i+1)
	}
	if w.in[i].lock == orphanExclusive || w.in[i].stalled {
		return nil // two of the windows
	}
	if w.path == incumbent {
		if w.in[i].misjudged {
			return fmt.Errorf("violates I1: instance %d removes a socket that is about to listen", i+1)
		}
		return nil // the third, if it lives at all
	}
	for o := range w.in {
		if w.mine(i) && !w.running(o) {
			continue // both leave, and it is theirs together
		}
		if o != i && w.lives(o) && w.mine(o) && (!w.in[o].exposed || w.in[o].early) {
			return fmt.Errorf("violates I1: instance %d removes the live socket of instance %d", i+1, o+1)
		}
	}
	for j := range w.in {
		if j == i || !w.running(j) {
			continue
		}
		if w.in[j].lock == shared || w.in[j].lock == strayShared || w.in[j].early {
			return fmt.Errorf("violates I5: instance %d lives, and kubelet sees instance %d remove the path", j+1, i+1)
		}
	}
	return nil
}

func doName(a packedAction, mid uint8) string {
	names := map[own.Do]string{
		own.AskDriver: "asks its driver", own.Join: "joins the lease", own.Look: "looks", own.Rest: "rests",
		own.Publish: "publishes", own.Claim: "claims the lease", own.Remove: "removes the path", own.StopServing: "stops serving",
		own.Adopt: "adopts", own.Resume: "resumes", own.LetGo: "lets go", own.Goodbye: "says goodbye", own.RemoveLease: "removes the lease file", own.Exit: "exits",
	}
	n := names[own.Do(a.do)]
	if mid > 0 {
		n += " (second system call)"
	}
	return n
}
