package registrar

import (
	"context"
	"errors"
	"time"

	own "github.com/holdfast-csi/node-driver-registrar/pkg/ownership"
	"github.com/holdfast-csi/node-driver-registrar/pkg/registration"
	"github.com/holdfast-csi/node-driver-registrar/pkg/regsocket"

	"k8s.io/klog/v2"
)

// redialEvery is how often a look at a peer dials anew: one that answers on a
// connection it has may yet accept no other, for want of descriptors. In between the
// held connection serves, at a tenth of the cost.
const redialEvery = 10 * time.Second

// heldPeer is a connection to the instance that serves the path, held so that its
// end is noticed at once.
type heldPeer struct {
	*registration.Peer
	id      regsocket.ID
	dialed  time.Time
	dropped chan struct{}
}

// answers says whether a look at id can do without a new connection.
func (p *heldPeer) answers(ctx context.Context, id regsocket.ID, s *sharing) bool {
	if p == nil || p.id != id || time.Since(p.dialed) >= redialEvery {
		return false
	}
	if who, ours := p.Identity(); ours {
		return s.following(who, p.Info().Endpoint) && p.Again(ctx) == nil
	}
	select { // an incumbent logs each call as kubelet's: do not call it each second
	case <-p.Gone():
		return false
	default:
		return true
	}
}

// look finds out what stands at the path, and who is behind it.
func (w *worker) look(ctx context.Context, leaving bool) own.Event {
	w.lookedAt = time.Now()
	saw := func(s own.Sight, id regsocket.ID) own.Event {
		return own.Event{News: own.Saw, Sight: s, ID: own.SocketID(id)}
	}
	id, mine, err := w.stat()
	switch {
	case errors.Is(err, regsocket.ErrAbsent):
		w.seen.over()
		return saw(own.Absent, regsocket.ID{})
	case errors.Is(err, regsocket.ErrNotSocket):
		w.seen.set(err)
		return saw(own.NotSocket, regsocket.ID{})
	case errors.Is(err, regsocket.ErrDirGone):
		w.seen.set(err)
		return saw(own.DirGone, regsocket.ID{})
	case err != nil:
		w.cannotTell(ctx, err)
		return saw(own.Unknown, regsocket.ID{})
	case mine:
		w.dropPeer()
		w.seen.over()
		return saw(own.Mine, id)
	}
	if s := w.r.share.Load(); s != nil {
		if _, _, _, lost := s.holds(id); lost {
			s.tellLoop(w.life, shareEvent{news: own.SpareLost})
		}
	}
	sight := w.ask(ctx, id, leaving)
	if sight == own.Absent { // it went meanwhile
		id = regsocket.ID{}
	}
	return saw(sight, id)
}

func (w *worker) stat() (id regsocket.ID, mine bool, err error) {
	if w.held != nil {
		mine, id, err = w.place.Mine(w.held.socket)
		return id, mine, err
	}
	id, err = w.place.Stat()
	return id, false, err
}

// ask asks whoever listens at the path who it is.
func (w *worker) ask(ctx context.Context, id regsocket.ID, leaving bool) own.Sight {
	limit := lookFor
	if leaving {
		limit = leaveLook
	}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if !leaving && w.peer.answers(within, id, w.r.share.Load()) {
		return sightOf(w.peer.Peer)
	}
	peer, err := registration.Ask(within, w.place.Dial, !leaving)
	if err != nil {
		return w.unanswered(ctx, err)
	}
	info := peer.Info()
	if info.Driver != w.name {
		peer.Close()
		w.cannotTell(ctx, errors.New("the registrar that answers at "+w.place.Path()+" is that of another driver, "+info.Driver))
		return own.Silent
	}
	w.seen.over()
	if leaving {
		defer peer.Close()
	} else {
		w.hold(peer, id)
	}
	return sightOf(peer)
}

func sightOf(p *registration.Peer) own.Sight {
	if _, ours := p.Identity(); ours {
		return own.Ours
	}
	return own.Incumbent
}

// unanswered judges a look that got no answer.
func (w *worker) unanswered(ctx context.Context, err error) own.Sight {
	switch {
	case ctx.Err() != nil:
		return own.Unknown // cut short
	case errors.Is(err, registration.ErrNoAnswer), errors.Is(err, registration.ErrForeign):
		w.cannotTell(ctx, err)
		return own.Silent
	}
	switch regsocket.ClassifyDial(err) {
	case regsocket.Refused:
		return own.Refused
	case regsocket.Absent:
		return own.Absent
	case regsocket.Busy:
		w.cannotTell(ctx, err)
		return own.Silent
	case regsocket.Denied, regsocket.Other, regsocket.Connected:
	}
	w.cannotTell(ctx, err)
	return own.Unknown
}

// cannotTell says once why a look was in vain.
func (w *worker) cannotTell(ctx context.Context, err error) {
	if ctx.Err() == nil && w.seen.news(err.Error(), err) {
		klog.InfoS("Cannot tell who serves the registration socket", "path", w.place.Path(), "because", err.Error())
	}
}

// hold keeps the connection instead of the one before.
func (w *worker) hold(peer *registration.Peer, id regsocket.ID) {
	before := w.peer
	w.dropPeer()
	next := &heldPeer{Peer: peer, id: id, dialed: time.Now(), dropped: make(chan struct{})}
	w.peer = next
	w.started.Go(func() {
		select {
		case <-next.dropped:
		case <-next.Gone():
			w.r.hint()
		case <-w.life.Done():
		}
	})
	if who, ours := peer.Identity(); ours && !w.new {
		w.r.share.Load().stands(w.life, who, peer.Info().Endpoint)
	}
	if before == nil || before.id != id {
		w.sayPeer(peer)
	}
}

func (w *worker) dropPeer() {
	if w.peer != nil {
		close(w.peer.dropped)
		w.peer.Close()
		w.peer = nil
	}
}
