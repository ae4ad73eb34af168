package endpoint_test

// The world of the explorer: a driver's directory, three generations of the driver,
// and two registrars that run the real Step, one of which accepts at the
// registration socket. Each system call is a step of its own.

import (
	"fmt"

	ep "github.com/holdfast-csi/node-driver-registrar/pkg/endpoint"
)

const (
	generations = 3
	registrars  = 2
)

type life uint8

const (
	unborn    life = iota
	removing       // it has removed csi.sock, and binds next
	bound          // csi.sock is its socket, on which it does not listen yet
	listening      // and now it does
	closing        // it has removed csi.sock by name, whoever's that was, and still listens
	over
)

type driver struct {
	life   life
	hung   bool // accepts and does not answer
	named  bool // its inode has a second name
	beside bool // it binds beside csi.sock and renames, so it never removes first
}

type registrar struct {
	life    regLife
	st      packed
	act     packedAction
	busy    bool // act is to be carried out
	mid     uint8
	listing listing // what the first half of a look has read
	soon    bool    // rests
	told    bool    // it accepts no more, and will learn of it
	asked   uint8   // who answered its last question
	owes    uint8   // turns of the symlink that it may still make
	fails   bool    // its next operation will fail
	failed  bool    // one of this round did
}

type regLife uint8

const (
	notYet regLife = iota
	runs
	frozen
	gone
)

type listing struct {
	socket uint8
	named  bool
	kind   ep.TargetKind
	target uint8
	others [generations]uint8
}

type budget struct {
	Drivers, Besides, DriverTerms, DriverKills, Hangs, Wipes uint8
	Registrars, Leaves, Crashes, Freezes, Roles              uint8
	LinkRemovals, Failures                                   uint8
}

type world struct {
	d      [generations]driver
	r      [registrars]registrar
	socket uint8 // whose inode csi.sock is; 0: absent
	kind   ep.TargetKind
	target uint8
	accept uint8 // the registrar that accepts, 0: none
	dirty  bool  // something happened while one was leaving
	left   budget
}

// Packed forms, so that a world is small.

type packedInode uint16

func packInode(i ep.Inode) packedInode {
	p := packedInode(i.ID.Ino) | packedInode(i.Life)<<3 | packedInode(i.Refusals)<<6
	if i.Heard {
		p |= 1 << 9
	}
	return p
}

func (p packedInode) unpack() ep.Inode {
	return ep.Inode{ID: id(uint8(p & 7)), Life: ep.Life(p >> 3 & 7), Refusals: uint8(p >> 6 & 7), Heard: p>>9&1 == 1}
}

type packed struct {
	op, leave, done                              uint8
	again, rested, turner, named, ended          bool
	socket                                       packedInode
	others                                       [generations]packedInode
	linkKind, linkTarget, askedKind, askedTarget uint8
}

func id(n uint8) ep.ID {
	if n == 0 {
		return ep.ID{}
	}
	return ep.ID{Dev: 1, Ino: uint64(n), Made: int64(n)}
}

func target(kind, n uint8) ep.Target {
	return ep.Target{Kind: ep.TargetKind(kind), ID: id(n)}
}

func pack(s ep.State) packed {
	p := packed{
		op: uint8(s.Op), leave: uint8(s.Leave), done: uint8(s.Done), again: s.Again, rested: s.Rested, turner: s.Turner, ended: s.Ended,
		named: s.View.Named, socket: packInode(s.View.Socket),
		linkKind: uint8(s.View.Link.Kind), linkTarget: uint8(s.View.Link.ID.Ino), askedKind: uint8(s.Asked.Kind), askedTarget: uint8(s.Asked.ID.Ino),
	}
	for i := range p.others {
		p.others[i] = packInode(s.View.Others[i])
	}
	return p
}

func (p packed) unpack() ep.State {
	s := ep.State{
		Op: ep.Op(p.op), Leave: ep.Leave(p.leave), Done: ep.Progress(p.done), Again: p.again, Rested: p.rested, Turner: p.turner, Ended: p.ended,
		View:  ep.View{Named: p.named, Socket: p.socket.unpack(), Link: target(p.linkKind, p.linkTarget)},
		Asked: target(p.askedKind, p.askedTarget),
	}
	for i, o := range p.others {
		s.View.Others[i] = o.unpack()
	}
	return s
}

type packedAction struct {
	do, id, fromKind, from, toKind, to uint8
	ids                                [generations + 1]uint8
}

func packAction(a ep.Action) packedAction {
	p := packedAction{
		do: uint8(a.Do), id: uint8(a.ID.Ino), fromKind: uint8(a.From.Kind), from: uint8(a.From.ID.Ino),
		toKind: uint8(a.To.Kind), to: uint8(a.To.ID.Ino),
	}
	for i := range p.ids {
		p.ids[i] = uint8(a.IDs[i].Ino)
	}
	return p
}

// lives says that driver n has a socket on which it listens, or is about to.
func (w *world) lives(n uint8) bool {
	return n != 0 && (w.listens(n) || w.d[n-1].life == bound)
}

func (w *world) listens(n uint8) bool {
	return n != 0 && (w.d[n-1].life == listening || w.d[n-1].life == closing)
}

func (w *world) answers(n uint8) bool { return w.listens(n) && !w.d[n-1].hung }

// probe is what a connect to the inode of driver n tells.
func (w *world) probe(n uint8) ep.Life {
	switch {
	case n == 0:
		return ep.Unheard
	case w.socket != n && !w.d[n-1].named:
		return ep.Gone
	case w.listens(n):
		return ep.Listens
	}
	return ep.Refuses
}

// resolves is the driver to which the announced endpoint leads, 0 for none.
func (w *world) resolves() uint8 {
	switch w.kind {
	case ep.ToSocket:
		return w.socket
	case ep.ToName:
		if w.d[w.target-1].named {
			return w.target
		}
	case ep.NoLink, ep.Foreign:
	}
	return 0
}

// read is the first half of a look.
func (w *world) read() listing {
	l := listing{socket: w.socket, kind: w.kind, target: w.target}
	n := 0
	for g := uint8(generations); g > 0; g-- { // the newest first
		if w.d[g-1].named {
			l.others[n] = g
			n++
		}
	}
	l.named = w.socket != 0 && w.d[w.socket-1].named
	return l
}

// happened lets every registrar turn the symlink once more.
func (w *world) happened() {
	for i := range w.r {
		w.r[i].owes = min(w.r[i].owes+1, 2)
		if w.r[i].life == runs && ep.Leave(w.r[i].st.leave) != ep.Stays {
			w.dirty = true
		}
	}
}

func (w *world) someRegistrar() bool {
	for i := range w.r {
		if w.r[i].life == runs && ep.Leave(w.r[i].st.leave) == ep.Stays {
			return true
		}
	}
	return false
}

// someLeaves: what two that leave at once leave behind is excused.
func (w *world) someLeaves() bool {
	for i := range w.r {
		if (w.r[i].life == runs || w.r[i].life == frozen) && ep.Leave(w.r[i].st.leave) != ep.Stays {
			return true
		}
	}
	return false
}

// tell gives registrar i a piece of news, and takes its orders.
func (w *world) tell(i int, e ep.Event) error {
	r := &w.r[i]
	s, actions := ep.Step(r.st.unpack(), e)
	r.st = pack(s)
	if n := uint8(s.View.Socket.ID.Ino); s.Op == ep.Idle && s.Leave == ep.Stays && n != 0 && w.socket == n && w.lives(n) && !w.d[n-1].named && !r.failed {
		return fmt.Errorf("violates I10: registrar %d has seen csi.sock, and its inode has no second name", i+1)
	}
	for _, a := range actions {
		switch a.Do {
		case ep.Soon:
			r.soon = true
		case ep.Watch:
		case ep.Fault:
			return fmt.Errorf("registrar %d: a fault: %+v in %+v", i+1, e, s)
		case ep.End:
			return w.ends(i)
		case ep.Look, ep.Pin, ep.Ask, ep.Turn, ep.Remove:
			if r.busy {
				return fmt.Errorf("registrar %d has two operations in flight", i+1)
			}
			r.act, r.busy, r.mid, r.soon = packAction(a), true, 0, false
		}
	}
	return nil
}

// ends checks what one that has tidied up leaves behind.
func (w *world) ends(i int) error {
	last := ep.Leave(w.r[i].st.leave) == ep.LeavesLast
	w.dies(i)
	if w.dirty || !last { // those who stay clean
		return nil
	}
	for g := range w.d {
		if n := uint8(g + 1); w.d[g].named && !w.lives(n) && w.target != n {
			return fmt.Errorf("violates I4: registrar %d has left a second name on which nobody listens", i+1)
		}
	}
	if w.listens(w.socket) && w.kind == ep.ToName {
		return fmt.Errorf("violates I10: the last one out leaves the symlink away from csi.sock, which a driver serves")
	}
	if w.resolves() == 0 && w.kind == ep.ToName {
		return fmt.Errorf("violates I10: the last one out leaves the symlink at a name that is gone")
	}
	return nil
}

func (w *world) dies(i int) {
	w.r[i] = registrar{life: gone}
	if w.accept == uint8(i+1) {
		w.accept = 0
	}
}
