package registrar

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/pkg/control"
	own "github.com/holdfast-csi/node-driver-registrar/pkg/ownership"
	"github.com/holdfast-csi/node-driver-registrar/pkg/regsocket"

	"k8s.io/klog/v2"
)

// How the worker takes part in sharing a listener.

// lend lets other instances have a copy of the listener that was just published.
func (w *worker) lend(h *holding) {
	s := w.r.share.Load()
	if s == nil {
		return
	}
	spare, err := h.socket.Spare()
	if err != nil {
		klog.InfoS("The registration socket cannot be shared; a takeover will cost kubelet a second", "because", err.Error())
		s.stopped()
		return
	}
	s.becomes(w.life, spare, h.endpoint, control.Kubelet{State: control.Quiet}, holder{})
}

// adopt accepts on the listener of the instance that serves the path, if kubelet would
// learn nothing new from this one.
func (w *worker) adopt(ctx context.Context) outcome {
	h, err := w.tryAdopt(ctx)
	if w.deferred.IsZero() {
		w.deferred = time.Now()
	}
	if errors.Is(err, errAgain) && time.Since(w.deferred) < adoptFor {
		w.dropPeer() // dial whoever accepts by then
		return news(own.Deferred)
	}
	w.deferred = time.Time{}
	if err != nil {
		if !errors.Is(err, errNoShare) && ctx.Err() == nil {
			klog.InfoS("The registration socket is not handed over, publishing another; kubelet is without the driver for about a second", "because", err.Error())
		}
		return news(own.NotAdopted)
	}
	w.dropPeer()
	w.held, w.new = h, false
	return outcome{event: own.Event{News: own.Adopted}, holding: h}
}

var errNoShare = errors.New("nothing is shared")

func (w *worker) tryAdopt(ctx context.Context) (*holding, error) {
	s := w.r.share.Load()
	if s == nil || w.peer == nil {
		return nil, errNoShare
	}
	acceptor, _ := w.peer.Identity()
	if acceptor.Control == "" {
		return nil, errNoShare
	}
	endpoint := w.r.endpoint()
	spare, conn, kubelet, err := s.adopt(ctx, acceptor, endpoint)
	if err != nil {
		return nil, err
	}
	h, err := w.acceptOn(spare, endpoint)
	if err == nil {
		if err = s.accepting(ctx, conn); err != nil {
			h.server.Stop()
		}
	}
	if err != nil {
		conn.Close()
		_ = spare.Close()
		return nil, err
	}
	s.becomes(w.life, spare, endpoint, kubelet, holder{conn, acceptor.Started})
	w.r.info.inherit(kubelet.NodeInfo)
	return h, nil
}

// acceptOn serves on a copy of spare.
func (w *worker) acceptOn(spare *regsocket.Spare, endpoint string) (*holding, error) {
	socket, err := spare.Listen()
	if err != nil {
		return nil, err
	}
	return w.serve(socket, endpoint)
}

// resume accepts on the spare, since the acceptor has ended.
func (w *worker) resume() outcome {
	s := w.r.share.Load()
	there, err := w.place.Stat()
	if err != nil {
		return news(own.NotResumed)
	}
	spare, endpoint, kubelet, _ := s.holds(there)
	if spare == nil {
		return news(own.NotResumed)
	}
	h, err := w.acceptOn(spare, endpoint)
	if err != nil {
		klog.ErrorS(err, "The copy of the registration socket is of no use")
		return news(own.NotResumed)
	}
	w.dropPeer()
	w.held = h
	s.becomes(w.life, spare, endpoint, kubelet, holder{})
	w.r.info.inherit(kubelet.NodeInfo)
	return outcome{event: own.Event{News: own.Resumed}, holding: h}
}

// yield stops accepting on a listener that was handed over. Its connections go on.
func (w *worker) yield() {
	h := w.held
	if h == nil {
		return
	}
	w.held = nil
	h.server.CloseListener()
	w.r.share.Load().moved(w.life)
	w.started.Go(func() { retire(w.life, h, 0) })
}

// shareSocket makes the control socket. Without one, a takeover costs kubelet a second.
func (w *worker) shareSocket() {
	if !w.r.cfg.Handover {
		return
	}
	s, err := newSharing(w.r, w.controls, w.place, w.self)
	if err != nil {
		if !errors.Is(err, errors.ErrUnsupported) {
			klog.InfoS("No control socket; a takeover will cost kubelet a second", "because", err.Error())
		}
		return
	}
	w.self = s.self
	w.r.share.Store(s)
	w.started.Go(func() { s.run(w.life) })
}
