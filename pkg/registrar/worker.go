package registrar

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/pkg/control"
	"github.com/holdfast-csi/node-driver-registrar/pkg/csidriver"
	"github.com/holdfast-csi/node-driver-registrar/pkg/lease"
	own "github.com/holdfast-csi/node-driver-registrar/pkg/ownership"
	"github.com/holdfast-csi/node-driver-registrar/pkg/registration"
	"github.com/holdfast-csi/node-driver-registrar/pkg/regsocket"

	"k8s.io/klog/v2"
)

const (
	joinFor     = time.Second            // how long a start waits for the lease
	claimFor    = 250 * time.Millisecond // how long a leaver asks for it exclusively
	claimLast   = 50 * time.Millisecond  // and once more, when it no longer serves
	claimEvery  = 10 * time.Millisecond
	lookFor     = time.Second            // how long a peer may take to answer one look
	leaveLook   = 200 * time.Millisecond // the same for a leaver: unknown counts as another's
	absentPause = 10 * time.Millisecond
	deadPause   = 100 * time.Millisecond
	silentEvery = 2500 * time.Millisecond // three looks are then 5 s
	sweepFor    = 150 * time.Millisecond
)

// job is what Step ordered at once. At most its last action has an outcome.
type job struct {
	ctx     context.Context
	done    context.CancelFunc
	actions []own.Action
}

type outcome struct {
	event   own.Event
	holding *holding // with Published
	fatal   error    // no restart of anything but this process can help
}

// worker carries out actions, one after the other.
type worker struct {
	r        *Registrar
	life     context.Context
	started  *sync.WaitGroup
	jobs     chan job
	outcomes chan outcome

	self        registration.Identity
	place       *regsocket.Place // nil until the driver has a name
	controls    *control.Place
	lease       *lease.Lease
	name        string
	held        *holding  // accepted on now
	new         bool      // it has neither published nor adopted yet, so it does not stand by
	deferred    time.Time // since when it is told to look again, instead of adopting
	leaving     bool
	peer        *heldPeer
	lookedAt    time.Time
	driverWait  csidriver.Backoff  // between two calls to a driver that does not answer
	publishWait csidriver.Backoff  // between two publications that fail
	retry       *csidriver.Backoff // the one of the two that is due

	waiting, locking, seen, publishing told
}

func newWorker(life context.Context, r *Registrar, started *sync.WaitGroup) *worker {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	w := &worker{
		r: r, life: life, started: started,
		new: true, jobs: make(chan job, 8), outcomes: make(chan outcome, 1),
		self: registration.Identity{Instance: newInstance(), Version: printable(r.cfg.Version), Host: printable(host), Started: time.Now()},
	}
	w.retry = &w.driverWait
	return w
}

// printable makes a word fit for gRPC metadata. It is only for the reader of a log.
func printable(s string) string {
	const longest = 128
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, s)
	return s[:min(len(s), longest)]
}

// run carries out jobs until there are no more, then lets go of everything except
// the path, which stays as the actions left it.
func (w *worker) run() {
	defer w.end()
	for j := range w.jobs {
		for _, a := range j.actions {
			o, has := w.do(j.ctx, a)
			if has {
				w.outcomes <- o
			}
		}
		j.done()
	}
}

func (w *worker) end() {
	w.r.share.Load().goodbye()
	if w.leaving {
		w.r.keeper.leave(false)
	}
	w.dropPeer()
	if w.held != nil {
		w.held.server.Stop()
	}
	if w.lease != nil {
		if err := w.lease.Close(); err != nil {
			klog.V(2).InfoS("Closing the node-local lock", "err", err)
		}
	}
}

// do carries out one action; has says whether it has an outcome.
func (w *worker) do(ctx context.Context, a own.Action) (o outcome, has bool) {
	switch a.Do {
	case own.AskDriver:
		return w.askDriver(ctx), true
	case own.Join:
		return news(w.join(ctx, a.Patient)), true
	case own.Look:
		return outcome{event: w.look(ctx, a.Brief)}, true
	case own.Rest:
		w.rest(ctx, a.Pause)
		return news(own.Rested), true
	case own.Publish:
		return w.publish(a.ID), true
	case own.Claim:
		return news(w.claim(a)), true
	case own.Remove:
		return news(w.remove(a.ID)), true
	case own.StopServing:
		if w.held != nil {
			w.held.server.CloseListener()
		}
		return news(own.Stopped), true
	case own.LetGo:
		w.letGo()
	case own.Adopt:
		return w.adopt(ctx), true
	case own.Resume:
		return w.resume(), true
	case own.Yield:
		w.yield()
	case own.Goodbye:
		w.leaving = true
		w.r.share.Load().goodbye()
		w.dropPeer()
		w.lease.Drop()
	case own.RemoveLease:
		w.removeLease(ctx)
	case own.BackOff, own.Exit, own.Fault, own.Give, own.Decline, own.Defer, own.TurnAway: // the loop's
	}
	return outcome{}, false
}

func news(n own.News) outcome { return outcome{event: own.Event{News: n}} }

// askDriver asks the driver for its name, once.
func (w *worker) askDriver(ctx context.Context) outcome {
	name, err := w.r.driverName(ctx)
	if err == nil && w.name != "" && name != w.name {
		err = fmt.Errorf("the driver at %s calls itself %q now, and was registered as %q: restart this container to register the new name", w.r.cfg.CSIAddress, name, w.name)
	}
	if err != nil {
		w.retry = &w.driverWait
		if t := (*csidriver.Trouble)(nil); errors.As(err, &t) && t.Reason == csidriver.DirGone {
			return outcome{event: own.Event{News: own.DriverDown}, fatal: err}
		}
		if ctx.Err() == nil && w.waiting.news(reasonOf(err), err) {
			klog.InfoS("Waiting for the CSI driver", "address", w.r.cfg.CSIAddress, "because", err.Error())
		}
		return news(own.DriverDown)
	}
	w.driverWait.Reset()
	if w.waiting.over() || w.name == "" {
		klog.InfoS("The CSI driver answers", "driver", name, "address", w.r.cfg.CSIAddress)
	}
	if w.name == "" {
		if err := w.named(name); err != nil {
			return outcome{event: own.Event{News: own.DriverDown}, fatal: err}
		}
	}
	return news(own.DriverUp)
}

func reasonOf(err error) string {
	var t *csidriver.Trouble
	if errors.As(err, &t) {
		return t.Reason.String()
	}
	return err.Error()
}

// named prepares what needs the driver's name.
func (w *worker) named(name string) error {
	place, err := regsocket.New(w.r.cfg.RegistrationDir, name)
	if err != nil {
		return err
	}
	if w.lease, err = lease.New(place.LeasePath()); err != nil {
		return err
	}
	if w.controls, err = control.New(w.r.cfg.RegistrationDir, name); err != nil {
		return err
	}
	w.name, w.place = name, place
	w.shareSocket()
	w.r.place.Store(place)
	w.started.Go(func() { w.sweep(w.life) })
	return nil
}

// join takes the lease shared, or checks that it still is.
func (w *worker) join(ctx context.Context, patient bool) own.News {
	ctx, cancel := context.WithTimeout(ctx, joinFor)
	defer cancel()
	if !patient {
		cancel() // once
	}
	err := w.lease.Join(ctx)
	if err == nil {
		if w.locking.over() {
			klog.InfoS("The node-local lock is held now", "lock", w.place.LeasePath())
		}
		return own.LeaseHeld
	}
	if w.locking.news(err.Error(), err) {
		klog.ErrorS(err, "No node-local lock for now; going on without it, and without it the registration socket is not removed at the end", "lock", w.place.LeasePath())
	}
	return own.LeaseMissed
}

// claim asks for the lease exclusively. A peer that holds a connection and has not
// said goodbye lives, whatever the lock says: somebody may have removed its file.
func (w *worker) claim(a own.Action) own.News {
	until := time.Now()
	switch {
	case a.Patient:
		until = until.Add(claimFor)
	case a.Brief:
		until = until.Add(claimLast)
	}
	for {
		err := w.lease.TryExclusive()
		if err == nil {
			if w.held == nil || w.held.server.Peers() == 0 {
				return own.Granted
			}
			w.lease.Drop()
		} else if !errors.Is(err, lease.ErrHeld) {
			klog.ErrorS(err, "No node-local lock, so nothing is removed", "lock", w.place.LeasePath())
			return own.NotGranted
		} else if w.held != nil && w.held.server.Peers() > 0 {
			return own.NotGranted // two witnesses: do not keep the survivor waiting
		}
		if w.life.Err() != nil || !time.Now().Add(claimEvery).Before(until) {
			return own.NotGranted
		}
		pause(w.life, claimEvery)
	}
}

func (w *worker) remove(id own.SocketID) own.News {
	if err := w.place.Remove(regsocket.ID(id)); err != nil {
		klog.InfoS("The registration socket was not removed", "path", w.place.Path(), "because", err.Error())
		return own.NotRemoved
	}
	return own.Removed
}

// removeLease takes the lease file away, which goes last, after whatever crashed
// instances have left.
func (w *worker) removeLease(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sweepFor)
	defer cancel()
	w.sweep(ctx)
	w.r.keeper.leave(true)
	if err := w.lease.Remove(); err != nil {
		klog.InfoS("The lock file stays", "lock", w.place.LeasePath(), "because", err.Error())
		w.lease.Drop()
	}
}

func (w *worker) sweep(ctx context.Context) {
	removed, err := w.place.Sweep(ctx)
	if !w.r.cfg.Strict {
		more, _ := w.controls.Sweep(ctx)
		removed = append(removed, more...)
	}
	if len(removed) > 0 {
		klog.InfoS("Removed what crashed instances left", "paths", removed)
	}
	if err != nil && ctx.Err() == nil {
		klog.V(2).InfoS("Looking for what crashed instances left", "err", err)
	}
}

// rest waits, unless it is cut short.
func (w *worker) rest(ctx context.Context, p own.Pause) {
	switch p {
	case own.AbsentPause:
		pause(ctx, absentPause)
	case own.DeadPause:
		pause(ctx, deadPause)
	case own.SilentPause:
		w.restWhileItStands(ctx, w.lookedAt.Add(silentEvery))
	case own.RetryPause, own.NoPause:
		pause(ctx, w.retry.Next())
	}
}

// restWhileItStands rests until then, or until something else stands at the path: a
// hint does not end a rest.
func (w *worker) restWhileItStands(ctx context.Context, until time.Time) {
	const checkEvery = 100 * time.Millisecond
	before, _, _ := w.stat()
	for ctx.Err() == nil && time.Now().Before(until) {
		if now, _, _ := w.stat(); now != before {
			return
		}
		pause(ctx, min(checkEvery, time.Until(until)))
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
