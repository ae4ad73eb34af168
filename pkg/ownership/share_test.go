package ownership_test

import (
	"fmt"

	own "github.com/holdfast-csi/node-driver-registrar/pkg/ownership"
)

// The world's half of sharing: who has a copy of which listener, what is under way on
// the control connections, and what kubelet may see of it.

// sharing is what the control layer of an instance has and has under way.
type sharing struct {
	spare    bool     // it holds a copy of a listener, and does not accept on it
	synced   bool     // the one to which it holds a connection tells it what kubelet says
	giveTo   uint8    // the newcomer to which it gives its listener
	given    uint8    // what it has yet to hear of that: it accepts, or it does not
	thanked  bool     // a newcomer: the giver has stopped accepting and told the holders of its spares
	word     own.News // what it has yet to hear of kubelet, 0 if nothing
	orphaned bool     // it has yet to see that the connection of the acceptor has ended
	told     own.Kubelet
}

const (
	accepts = 1 + iota
	fails
)

// hears keeps what instance i has heard about kubelet, whatever Step makes of it.
func (w *world) hears(i int, n own.News) {
	told := &w.in[i].share.told
	if !w.shares {
		return
	}
	switch n {
	case own.KubeletAsked:
		*told = own.Asked
	case own.KubeletConfirmed, own.Adopted:
		*told = own.Confirmed
	case own.KubeletRefused, own.KubeletLeft:
		*told = own.Refusing
	case own.Published, own.SpareHeld, own.SpareLost:
		*told = own.Quiet
	}
}

// knows says that instance i holds the listener at the path, and knows, or is about
// to hear, that kubelet has confirmed it.
func (w *world) knows(i int) bool {
	in := &w.in[i]
	if in.proc != alive || !in.at || own.Phase(in.st.phase) != own.Running {
		return false
	}
	if in.share.word != 0 {
		return in.share.word == own.KubeletConfirmed
	}
	return in.share.told == own.Confirmed
}

// quiet says that kubelet is content with the listener at the path, and that one who
// can go on with it knows that.
func (w *world) quiet() bool {
	if w.path != ours || !w.noKubelet && (!w.k.reg || w.k.fresh || w.k.conn != 0) || w.k.old {
		return false
	}
	for i := range w.in {
		if w.knows(i) {
			return true
		}
	}
	return false
}

// checkQuiet holds I9 against the publication that instance i is about to make.
func (w *world) checkQuiet(i int) error {
	if w.shares && w.quiet() && !w.anyFrozen() && !w.in[i].excused {
		return fmt.Errorf("violates I9: kubelet sees a new socket, of instance %d, although it has confirmed the one at the path and somebody alive has that", i+1)
	}
	return nil
}

// holdOn keeps the connection of i to the one that answered its look. Who shares keeps
// the one it has until that ends or gives its listener away.
func (w *world) holdOn(i int, sight own.Sight) {
	in := &w.in[i]
	switch {
	case sight == own.Ours:
		if j := w.answerer(i); in.holds != j && !in.share.synced {
			in.holds, in.early, in.share.synced = j, false, false
		}
		if !w.shares {
			in.early = false
		}
	case !w.shares:
		in.holds, in.early = 0, false
	}
	in.excused = in.excused && (in.st.due || in.st.stale || in.st.orphan) || w.shares && sight == own.Silent && w.anyFrozen()
}

// heirIsDue says that a look of i may end: it takes longer than it takes an heir to
// resume, whose answer it then gets.
func (w *world) heirIsDue(m *model, i int) bool {
	if s, _ := w.sight(i); s != own.Silent || w.in[i].st.orphan { // an orphan's look is cut short
		return true
	}
	for j := range w.in {
		in := &w.in[j]
		if in.proc == alive && in.at && (w.isHeir(m, j) || j != i && in.st.orphan && own.Phase(in.st.phase) == own.Running || own.Op(in.st.op) == own.Resuming) {
			return false
		}
	}
	return true
}

// hangUp ends the control connections of i: it has said goodbye, or has died.
func (w *world) hangUp(m *model, i int) {
	if !w.shares {
		return
	}
	w.forsakes(m, i)
	w.letGoOfSpares(i)
}

// letGoOfSpares closes what i holds of listeners of others, and forgets what was
// under way about them.
func (w *world) letGoOfSpares(i int) {
	in := &w.in[i]
	if in.share.spare {
		in.at = false
	}
	in.share = sharing{}
}

// passOn tells the holders of spares what kubelet said to i.
func (w *world) passOn(i int, n own.News) {
	for k := range w.in {
		if in := &w.in[k]; in.holds == uint8(i+1) && in.share.synced {
			in.share.word = n
		}
	}
}

// giver is who gives its listener to i, -1 if nobody does.
func (w *world) giver(i int) int {
	for j := range w.in {
		if w.in[j].share.giveTo == uint8(i+1) {
			return j
		}
	}
	return -1
}

// forsakes ends what i is to others: the acceptor, or the newcomer to which one gives
// its listener. Of those who had spares of it, the newest goes on with what it knows;
// the others can not know what kubelet says to that one.
func (w *world) forsakes(m *model, i int) {
	newest := true
	for k := slots - 1; k >= 0; k-- {
		in := &w.in[k]
		if in.holds == uint8(i+1) && in.share.synced {
			in.share.synced, in.share.orphaned = false, true
			if !newest && !m.noVoid {
				in.share.word = own.KubeletLeft
			}
			newest = false
		}
		if g := &in.share; g.giveTo == uint8(i+1) {
			g.giveTo = 0
			if g.given == 0 {
				g.given = fails
			}
		}
	}
}

// adopt: i asks the acceptor, begins to accept, says so, and waits until that one has
// stopped and has told the holders of its spares. Until then it answers no call of kubelet's.
func (m *model) adopt(w *world, i int, a packedAction, done func(own.Event) error) error {
	in, j := &w.in[i], w.giver(i)
	switch in.mid {
	case 0:
		j = int(w.answerer(i)) - 1
		if j < 0 || a.id != idPath {
			return w.notAdopted(m, i, own.Deferred, false)
		}
		if w.k.old {
			return w.notAdopted(m, i, own.NotAdopted, true)
		}
		fair := !w.quiet() || w.in[j].excused // it has to publish itself
		answer, err := w.ask(j, ev(own.GiveAsked))
		if err != nil {
			return err
		}
		if answer == own.Decline {
			return w.notAdopted(m, i, own.NotAdopted, fair)
		}
		if answer != own.Give {
			return w.notAdopted(m, i, own.Deferred, fair)
		}
		w.in[j].share.giveTo = uint8(i + 1)
	case 1:
		if j < 0 || !w.in[j].at {
			return w.notAdopted(m, i, own.Deferred, false)
		}
		in.open, in.at = true, true
	case 2:
		if j < 0 || !w.mine(i) {
			return w.notAdopted(m, i, own.Deferred, false)
		}
		w.in[j].share.given = accepts
		if m.noThanks {
			w.in[j].holds, w.in[j].share.synced, in.share.thanked = uint8(i+1), true, true
		}
	case 3:
		if !in.share.thanked {
			return w.notAdopted(m, i, own.Deferred, false)
		}
		in.share.thanked = false
		return done(ev(own.Adopted))
	}
	in.mid++
	return nil
}

func (w *world) notAdopted(m *model, i int, n own.News, excused bool) error {
	in := &w.in[i]
	w.forsakes(m, i)
	in.share.thanked = false
	if in.open {
		w.closeListener(uint8(i + 1))
	}
	in.excused = in.excused || excused || w.anyFrozen()
	w.pop(i)
	return w.tell(i, ev(n))
}

// yields: i has given the listener away, and keeps a spare. Those who hold spares of
// it have to turn to the newcomer, and until then do not know what kubelet says.
func (w *world) yields(i int) {
	in := &w.in[i]
	in.open, in.share.spare = false, true
	if to := in.share.giveTo; to != 0 {
		in.holds, in.share.synced, in.share.giveTo = to, true, 0
		w.in[to-1].share.thanked = true
	} else {
		in.share.orphaned = true // the newcomer has gone meanwhile
	}
	for k := range w.in {
		if o := &w.in[k]; o.holds == uint8(i+1) && o.share.synced {
			o.share.synced, o.share.word = false, own.KubeletLeft
		}
	}
}

func (w *world) resume(i int, done func(own.Event) error) error {
	in := &w.in[i]
	had := in.share.spare && in.at
	in.share.spare = false
	in.share.orphaned = false
	if !had {
		in.at = false
		return done(ev(own.NotResumed))
	}
	in.open = true
	return done(ev(own.Resumed))
}

// isHeir says that i will hear that the acceptor has ended: whoever had a newer spare of
// it is dead or frozen.
func (w *world) isHeir(m *model, i int) bool {
	in := &w.in[i]
	if in.proc != alive || !in.share.orphaned {
		return false
	}
	for j := i + 1; j < slots && !m.hasty; j++ {
		o := &w.in[j]
		if o.proc == alive && o.at && (o.share.orphaned || o.st.orphan || own.Op(o.st.op) == own.Resuming || o.open) {
			return false
		}
	}
	return true
}

func (w *world) sharingMoves(i int, m *model, out []move) []move {
	in := &w.in[i]
	running := own.Phase(in.st.phase) == own.Running
	add := func(k moveKind, when bool) {
		if when {
			out = append(out, move{k, uint8(i)})
		}
	}
	add(getsSpare, running && w.spareFor(i))
	add(closesSpare, in.share.spare && !in.at)
	add(hearsWord, in.share.word != 0 && in.share.given == 0)
	add(hearsGiven, in.share.given != 0)
	add(isOrphaned, w.isHeir(m, i) && in.share.word == 0 && in.share.given == 0) // what was said before comes first
	add(tiresOfTaker, in.share.giveTo != 0 && in.share.given == 0 && w.in[max(in.share.giveTo, 1)-1].proc == frozen)
	add(learns, running && w.k.old && in.st.accepting && w.mine(i) && !in.st.stale)
	add(confirmsAndKilled, w.left.Crashes > 0 && w.k.conn == uint8(i+1))
	add(cannotTell, w.left.Cuts > 0 && running && in.st.accepting && w.mine(i) && w.hasSpares(i))
	add(handshakeFails, w.left.Failures > 0 && in.n > 0 && own.Do(in.queue[0].do) == own.Adopt)
	return out
}

func (w *world) hasSpares(i int) bool {
	for k := range w.in {
		if w.in[k].holds == uint8(i+1) && w.in[k].share.synced {
			return true
		}
	}
	return false
}

// spareFor says that the one to which i holds a connection can give it a spare, or, if
// it has one, tell it what kubelet says from now on.
func (w *world) spareFor(i int) bool {
	in := &w.in[i]
	if in.holds == 0 || in.share.synced || in.st.accepting || in.st.owed || in.open || in.share.given != 0 {
		return false
	}
	if in.st.orphan || own.Op(in.st.op) == own.Resuming { // it goes on with the one it has
		return false
	}
	j := int(in.holds) - 1
	return w.in[j].proc == alive && w.mine(j) && w.in[j].st.accepting && own.Phase(w.in[j].st.phase) == own.Running
}

func (w *world) applySharing(mv move, m *model) error {
	i := int(mv.i)
	in := &w.in[i]
	switch mv.kind {
	case getsSpare:
		kubelet := own.Kubelet(w.in[in.holds-1].st.kubelet)
		in.at = true
		in.share = sharing{spare: true, synced: true}
		if err := w.tell(i, ev(own.SpareHeld)); err != nil {
			return err
		}
		switch kubelet {
		case own.Asked:
			return w.tell(i, ev(own.KubeletAsked))
		case own.Confirmed:
			return w.tell(i, ev(own.KubeletConfirmed))
		case own.Refusing:
			return w.tell(i, ev(own.KubeletRefused))
		}
	case closesSpare:
		w.letGoOfSpares(i)
		return w.tell(i, ev(own.SpareLost))
	case hearsWord:
		n := in.share.word
		in.share.word = 0
		return w.tell(i, ev(n))
	case hearsGiven:
		n := own.Given
		if in.share.given == fails {
			n = own.NotGiven
		}
		in.share.given = 0
		err := w.tell(i, ev(n))
		in.share.giveTo = 0
		return err
	case isOrphaned:
		in.share.orphaned = false
		in.excused = in.excused || w.anyFrozen() || m.hasty // one with a newer spare, which knows more
		return w.tell(i, ev(own.Orphaned))
	case tiresOfTaker:
		in.share.giveTo = 0
		return w.tell(i, ev(own.NotGiven))
	case learns:
		return w.tell(i, ev(own.Outdated))
	case confirmsAndKilled:
		w.left.Crashes--
		w.k.reg, w.k.conn = w.k.want, 0
		w.dies(m, i)
	case cannotTell:
		w.left.Cuts--
		w.forsakes(m, i)
		in.excused = true
		return w.tell(i, ev(own.Outdated))
	case handshakeFails:
		w.left.Failures--
		return w.notAdopted(m, i, own.NotAdopted, true)
	}
	return nil
}
