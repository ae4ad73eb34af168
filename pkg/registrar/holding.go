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

const (
	// queueFor is how long a socket that was replaced goes on accepting: kubelet may
	// have dialled it just before.
	queueFor = time.Second
	// hangUpFor is how long its connections may last after that. Kubelet keeps one open
	// while it waits for NodeGetInfo, for up to 2 min (csiTimeout in
	// pkg/volume/csi/csi_plugin.go, v1.36.3).
	hangUpFor = 150 * time.Second
)

// holding is a registration socket that this instance accepts on.
type holding struct {
	socket *regsocket.Socket
	server *registration.Server
	// endpoint is what kubelet is told.
	endpoint string
	known    chan struct{} // closed when the loop knows of it, so that kubelet's calls come after
}

// publish puts a new socket at the path, over exactly what was judged.
func (w *worker) publish(over own.SocketID) outcome {
	w.new = false
	h, err := w.bind()
	if err == nil {
		if err = w.place.Publish(h.socket, regsocket.ID(over)); err != nil {
			h.server.Stop()
		}
	}
	if err == nil {
		w.publishing.over()
		w.publishWait.Reset()
		w.dropPeer()
		w.letGo()
		w.held = h
		w.lend(h)
		return outcome{event: own.Event{News: own.Published}, holding: h}
	}
	switch {
	case errors.Is(err, regsocket.ErrExists):
		return news(own.PathTaken)
	case errors.Is(err, regsocket.ErrChanged), errors.Is(err, regsocket.ErrAbsent):
		return news(own.PathChanged)
	case errors.Is(err, regsocket.ErrNotSocket):
		w.seen.set(err)
		return outcome{event: own.Event{News: own.PathUnfit, Sight: own.NotSocket}}
	case errors.Is(err, regsocket.ErrDirGone):
		w.seen.set(err)
		return outcome{event: own.Event{News: own.PathUnfit, Sight: own.DirGone}}
	}
	w.retry = &w.publishWait
	if w.publishing.news(err.Error(), err) {
		klog.ErrorS(err, "Cannot publish the registration socket, trying again", "path", w.place.Path())
	}
	return news(own.PublishFailed)
}

// bind makes a socket that serves, under a name that kubelet ignores.
func (w *worker) bind() (*holding, error) {
	socket, err := w.place.Bind()
	if err != nil {
		return nil, err
	}
	return w.serve(socket, w.r.endpoint())
}

// serve answers on socket.
func (w *worker) serve(socket *regsocket.Socket, endpoint string) (h *holding, err error) {
	h = &holding{socket: socket, endpoint: endpoint, known: make(chan struct{})}
	h.server, err = registration.NewServer(registration.Config{
		Info:   registration.Info{Driver: w.name, Endpoint: h.endpoint},
		Self:   w.self,
		OnCall: func(c registration.Call) error { return w.report(h, c) },
	})
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	w.started.Go(func() {
		if err := h.server.Serve(socket); err != nil {
			klog.ErrorS(err, "The registration socket no longer accepts, publishing another")
			// The socket is closed, and no longer mine to the next look.
			w.r.hint()
		}
	})
	return h, nil
}

// errNotAcceptor turns kubelet away from one that has handed its listener over: it
// dials anew, and finds the acceptor.
var errNotAcceptor = errors.New("another instance accepts here now: dial again")

// report passes a call of kubelet's on to the loop, after the loop has learnt of the
// socket it came to. GetInfo is answered only after the loop has taken it in.
func (w *worker) report(h *holding, c registration.Call) error {
	select {
	case <-h.known:
	case <-w.life.Done():
		return nil
	}
	away := make(chan bool, 1)
	select {
	case w.r.calls <- call{Call: c, to: h, away: away}:
	case <-w.life.Done():
		return nil
	}
	if c.Kind != registration.Asked {
		return nil
	}
	select {
	case turned := <-away:
		if turned {
			return errNotAcceptor
		}
	case <-w.life.Done():
	}
	return nil
}

// letGo retires the socket accepted on: the path is another's.
func (w *worker) letGo() {
	h := w.held
	if h == nil {
		return
	}
	w.held = nil
	w.r.share.Load().stopped()
	w.started.Go(func() { retire(w.life, h, queueFor) })
}

// retire goes on accepting for those who had dialled, then waits for them to hang up.
func retire(ctx context.Context, h *holding, accepting time.Duration) {
	pause(ctx, accepting)
	h.server.CloseListener()
	until := time.Now().Add(hangUpFor)
	for ctx.Err() == nil && h.server.Connections() > 0 && time.Now().Before(until) {
		pause(ctx, time.Second)
	}
	h.server.Stop()
}
