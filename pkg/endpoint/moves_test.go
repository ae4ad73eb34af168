package endpoint_test

import (
	"fmt"

	ep "github.com/holdfast-csi/node-driver-registrar/pkg/endpoint"
)

type moveKind uint8

const (
	act moveKind = iota // the next system call of a registrar
	hint
	rested
	succeeds // a living registrar begins to accept, nobody else of ours does
	learns   // a registrar learns that it accepts no more
	binds
	listens
	closes

	firstOutside
	registrarStarts = iota - 1
	registrarLeaves
	registrarCrashes
	freezes
	thaws
	takesOver
	fails
	driverStarts       // removes csi.sock by name
	driverStartsBeside // will put its socket there by rename
	driverUnlinks      // SIGTERM: removes csi.sock by name, and closes then
	driverCloses       // ends, and leaves its name
	driverHangs
	wiped
	linkRemoved
)

type move struct {
	kind moveKind
	i    uint8
}

func (m move) outside() bool { return m.kind >= firstOutside }

var moveNames = map[moveKind]string{
	hint: "registrar %d: a hint", rested: "registrar %d: has rested", succeeds: "registrar %d: accepts, since nobody does", learns: "registrar %d: learns that it accepts no more",
	binds: "driver %d: binds csi.sock", listens: "driver %d: listens", closes: "driver %d: closes",
	registrarStarts: "registrar %d: starts", registrarLeaves: "registrar %d: is asked to leave", registrarCrashes: "registrar %d: crashes",
	freezes: "registrar %d: freezes", thaws: "registrar %d: thaws", takesOver: "registrar %d: takes over", fails: "registrar %d: its next operation will fail",
	driverStarts: "driver %d: starts, removes csi.sock by name", driverStartsBeside: "driver %d: starts, binds another name",
	driverUnlinks: "driver %d: ends, removes csi.sock by name", driverCloses: "driver %d: ends, and leaves its name", driverHangs: "driver %d: hangs, or recovers",
	wiped: "somebody wipes the directory", linkRemoved: "somebody removes the symlink",
}

func (m move) name(w *world) string {
	if m.kind == act {
		a := w.r[m.i].act
		names := map[ep.Do]string{ep.Look: "looks", ep.Pin: "pins", ep.Ask: "asks", ep.Turn: "turns the symlink", ep.Remove: "removes a second name"}
		return fmt.Sprintf("registrar %d: %s, %+v, system call %d", m.i+1, names[ep.Do(a.do)], a, w.r[m.i].mid+1)
	}
	format := moveNames[m.kind]
	if m.kind == wiped || m.kind == linkRemoved {
		return format
	}
	return fmt.Sprintf(format, m.i+1)
}

func (w *world) moves(out []move) []move {
	add := func(k moveKind, i int, when bool) {
		if when {
			out = append(out, move{k, uint8(i)})
		}
	}
	somebodyBinds := false
	for g := range w.d {
		somebodyBinds = somebodyBinds || w.d[g].life == bound
	}
	for i := range w.r {
		r := &w.r[i]
		stays := ep.Leave(r.st.leave) == ep.Stays
		switch r.life {
		case notYet:
			add(registrarStarts, i, w.left.Registrars > 0 && (i == 0 || w.r[i-1].life != notYet))
		case runs:
			add(act, i, r.busy)
			add(hint, i, !r.busy && !r.soon)
			add(rested, i, r.soon && !somebodyBinds) // 100 ms are enough to listen after a bind
			add(succeeds, i, w.accept == 0 && stays && !w.accepting())
			add(learns, i, r.told)
			add(takesOver, i, w.left.Roles > 0 && w.accept != uint8(i+1) && stays)
			add(registrarLeaves, i, w.left.Leaves > 0 && stays)
			add(registrarCrashes, i, w.left.Crashes > 0)
			add(freezes, i, w.left.Freezes > 0)
			add(fails, i, w.left.Failures > 0 && r.busy && ep.Do(r.act.do) != ep.Look)
		case frozen:
			add(thaws, i, true)
		case gone:
		}
	}
	for g := range w.d {
		d := &w.d[g]
		add(driverStarts, g, d.life == unborn && w.left.Drivers > 0 && (g == 0 || w.d[g-1].life != unborn))
		add(driverStartsBeside, g, d.life == unborn && w.left.Drivers > 0 && w.left.Besides > 0 && (g == 0 || w.d[g-1].life != unborn))
		add(binds, g, d.life == removing)
		add(listens, g, d.life == bound && !d.beside)
		add(closes, g, d.life == closing)
		add(driverUnlinks, g, d.life == listening && w.left.DriverTerms > 0)
		add(driverCloses, g, (d.life == listening || d.life == bound) && w.left.DriverKills > 0)
		add(driverHangs, g, (d.life == listening || d.life == closing) && w.left.Hangs > 0)
	}
	add(wiped, 0, w.left.Wipes > 0)
	add(linkRemoved, 0, w.left.LinkRemovals > 0 && w.kind != ep.NoLink)
	return out
}

// accepting says that a living registrar accepts, or believes so. One that is frozen
// is found silent.
func (w *world) accepting() bool {
	for i := range w.r {
		if w.r[i].life == runs && w.r[i].st.turner && ep.Leave(w.r[i].st.leave) == ep.Stays {
			return true
		}
	}
	return false
}

func (w *world) apply(mv move, m *model) error {
	if mv.outside() || mv.kind == binds || mv.kind == listens || mv.kind == closes || mv.kind == succeeds {
		w.happened()
	}
	i := int(mv.i)
	switch mv.kind {
	case act:
		return w.carryOut(i, m)
	case hint:
		return w.tell(i, ep.Event{News: ep.Hint})
	case rested:
		w.r[i].soon = false
		return w.tell(i, ep.Event{News: ep.Rested})
	case learns:
		w.r[i].told = false
		return w.tell(i, ep.Event{News: ep.AcceptsNot})
	case succeeds, takesOver, registrarStarts, registrarLeaves, registrarCrashes, freezes, thaws, fails:
		return w.applyRegistrar(mv)
	default:
		w.applyDriver(mv)
	}
	return nil
}

func (w *world) applyRegistrar(mv move) error {
	i := int(mv.i)
	r := &w.r[i]
	switch mv.kind {
	case succeeds, takesOver:
		if mv.kind == takesOver {
			w.left.Roles--
		}
		for j := range w.r {
			if j != i && w.r[j].st.turner {
				w.r[j].told = true
			}
		}
		w.accept, r.told = mv.i+1, false
		return w.tell(i, ep.Event{News: ep.Accepts})
	case registrarStarts:
		w.left.Registrars--
		r.life = runs
		return w.tell(i, ep.Event{News: ep.Hint})
	case registrarLeaves:
		w.left.Leaves--
		news := ep.LeavesAsLast
		for j := range w.r {
			if j != i && (w.r[j].life == runs || w.r[j].life == frozen) {
				news = ep.LeavesNow
			}
		}
		w.dirty = w.someLeaves()
		if w.accept == mv.i+1 {
			w.accept = 0
		}
		return w.tell(i, ep.Event{News: news})
	case registrarCrashes:
		w.left.Crashes--
		w.dies(i)
	case freezes:
		w.left.Freezes--
		r.life = frozen
		if w.accept == mv.i+1 {
			w.accept = 0 // the others find it silent
		}
		for j := range w.r {
			if j != i && w.r[j].life == runs && r.st.turner {
				r.told = true
			}
		}
	case thaws:
		r.life = runs
	case fails:
		w.left.Failures--
		r.fails = true
	default:
	}
	return nil
}

func (w *world) applyDriver(mv move) {
	d := &w.d[mv.i]
	n := mv.i + 1
	switch mv.kind {
	case driverStarts:
		w.left.Drivers--
		w.socket = 0
		d.life = removing
	case driverStartsBeside:
		w.left.Drivers--
		w.left.Besides--
		d.life, d.beside = removing, true
	case binds:
		switch {
		case d.beside:
			w.socket, d.life = n, listening
		case w.socket != 0:
			d.life = over // address already in use, by another driver
		default:
			w.socket, d.life = n, bound
		}
	case listens:
		d.life = listening
	case closes:
		d.life, d.hung = over, false
	case driverUnlinks:
		w.left.DriverTerms--
		w.socket = 0
		d.life = closing
	case driverCloses:
		w.left.DriverKills--
		d.life, d.hung = over, false
	case driverHangs:
		w.left.Hangs--
		d.hung = !d.hung
	case wiped:
		w.left.Wipes--
		w.socket, w.kind, w.target = 0, ep.NoLink, 0
		for g := range w.d {
			w.d[g].named = false
		}
	case linkRemoved:
		w.left.LinkRemovals--
		w.kind, w.target = ep.NoLink, 0
	default:
	}
}

// model holds the leaf's guards that a test may take out.
type model struct {
	coarse    bool // a look is one step: for two registrars
	noCompare bool // Turn does not compare what is there with what was seen
}

// carryOut makes one system call of registrar i.
func (w *world) carryOut(i int, m *model) error {
	r := &w.r[i]
	a := r.act
	done := func(e ep.Event) error {
		r.busy, r.mid, r.listing, r.act = false, 0, listing{}, packedAction{}
		return w.tell(i, e)
	}
	failed := r.fails
	r.fails, r.failed = false, r.failed || failed
	switch ep.Do(a.do) {
	case ep.Look:
		if r.mid == 0 {
			r.listing, r.mid, r.failed = w.read(), 1, false
			if !m.coarse {
				return nil
			}
		}
		return done(ep.Event{News: ep.Looked, View: w.view(r.listing)})
	case ep.Pin:
		if failed || w.socket != a.id {
			r.failed = true
			return done(ep.Event{News: ep.NotPinned})
		}
		if !w.lives(a.id) && w.r[i].st.socket.unpack().Dead() {
			return fmt.Errorf("violates I10: registrar %d gives a second name to one on which nobody listens", i+1)
		}
		w.d[a.id-1].named = true
		return done(ep.Event{News: ep.Pinned})
	case ep.Ask:
		r.asked = 0
		for _, n := range a.ids {
			if w.answers(n) && (w.socket == n || w.d[n-1].named) && !failed {
				r.asked = n
				break
			}
		}
		return done(ep.Event{News: ep.Answered, ID: id(r.asked)})
	case ep.Turn:
		return w.turn(i, m, failed, done)
	case ep.Remove:
		if r.mid == 0 {
			if failed || !w.d[a.id-1].named {
				return done(ep.Event{News: ep.NotRemoved})
			}
			r.mid = 1
			return nil
		}
		if w.lives(a.id) {
			return fmt.Errorf("violates I10: registrar %d removes the second name of a living driver", i+1)
		}
		w.d[a.id-1].named = false
		return done(ep.Event{News: ep.Removed})
	case ep.Soon, ep.Watch, ep.End, ep.Fault:
	}
	return nil
}

func (w *world) turn(i int, m *model, failed bool, done func(ep.Event) error) error {
	r := &w.r[i]
	a := r.act
	if r.mid == 0 {
		if failed || !m.noCompare && (w.kind != ep.TargetKind(a.fromKind) || w.target != a.from) {
			return done(ep.Event{News: ep.NotTurned})
		}
		if w.kind != ep.NoLink {
			r.mid = 1
			return nil
		}
	}
	if ep.TargetKind(a.toKind) == ep.ToName && (a.to == 0 || r.asked != a.to) {
		return fmt.Errorf("violates I10: registrar %d turns the symlink to a driver that has not answered", i+1)
	}
	if ep.TargetKind(a.toKind) == ep.ToSocket && ep.Leave(r.st.leave) == ep.Stays && w.answers(w.resolves()) && w.listens(w.socket) && w.d[w.socket-1].hung && r.asked != w.socket {
		return fmt.Errorf("violates I10: registrar %d turns the symlink from a driver that answers to one that does not", i+1)
	}
	if r.owes == 0 {
		return fmt.Errorf("violates I10: registrar %d turns the symlink and nothing has happened", i+1)
	}
	r.owes--
	if w.accept != uint8(i+1) || w.kind != ep.TargetKind(a.fromKind) || w.target != a.from {
		w.happened() // it was late, which the acceptor has to put right
	}
	w.kind, w.target = ep.TargetKind(a.toKind), a.to
	return done(ep.Event{News: ep.Turned})
}

func (w *world) view(l listing) ep.View {
	v := ep.View{Socket: w.inode(l.socket), Named: l.named, Link: target(uint8(l.kind), l.target)}
	for k, n := range l.others {
		v.Others[k] = w.inode(n)
	}
	return v
}

func (w *world) inode(n uint8) ep.Inode { return ep.Inode{ID: id(n), Life: w.probe(n)} }
