package registrar

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/pkg/endpoint"

	"k8s.io/klog/v2"
)

const (
	// endpointLook is how long a change in the driver's directory may go unnoticed when
	// every hint is lost.
	endpointLook = time.Second
	// soonPause lies between two looks at a socket that refuses.
	soonPause = 100 * time.Millisecond
	// watchEvery is how often the driver that kubelet is led to is probed while another
	// could take over at once. A probe is one connect(2), closed at once: about 15 µs.
	// After watchFor without a change it is done only every watchRarely.
	watchEvery  = 10 * time.Millisecond
	watchFor    = 5 * time.Minute
	watchRarely = 250 * time.Millisecond
	// askGrace is how long an answer waits for that of a newer instance.
	askGrace = 10 * time.Millisecond
	// successorFor is how long after another process of the driver has appeared its
	// registrar may be about to start.
	successorFor = 2 * time.Minute
	// tempAge is how old a temporary name of ours is that only a crash can have left.
	tempAge = time.Minute
	// tidyFor bounds what a leaver does in the driver's directory.
	tidyFor = 200 * time.Millisecond
)

// keeper keeps a name for the endpoint that kubelet is told: a symlink beside
// csi.sock, which leads to a driver that answers. What it does is decided by
// endpoint.Step; it carries that out, one operation after the other, in a goroutine
// of its own, since a driver that goes must be noticed whatever the worker waits for.
type keeper struct {
	r     *Registrar
	names *endpoint.Names
	keeps bool   // whether it does more than look
	path  string // what is announced if keeps

	plain     atomic.Bool // kubelet cannot use the symlink: announce the plain path until the next start
	accepting atomic.Bool // the loop's word
	hints     chan struct{}
	leaves    chan bool       // room for one: whether this instance is the last
	left      chan struct{}   // closed when it has tidied up
	cut       context.Context // ends what takes long, when this instance leaves
	cutShort  context.CancelFunc

	replaced atomic.Int64 // when another process of the driver took csi.sock, likewise

	state   endpoint.State
	waits   endpoint.Do  // Soon or Watch, if the last step said so
	changed atomic.Int64 // when the view last changed, in nanoseconds since 1970
	trouble told
	driver  driverWatch
}

// newKeeper returns nil if nothing at all is to be done in the driver's directory.
func newKeeper(life context.Context, r *Registrar) *keeper {
	if r.cfg.Strict {
		return nil
	}
	names, err := endpoint.NewNames(r.cfg.CSIAddress)
	if err != nil { // csidriver.New has accepted the address
		klog.ErrorS(err, "The driver's directory is not looked after")
		return nil
	}
	if _, err := names.Read(); errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	k := &keeper{r: r, names: names, hints: make(chan struct{}, 1), leaves: make(chan bool, 1), left: make(chan struct{})}
	k.cut, k.cutShort = context.WithCancel(life)
	if r.cfg.KeepEndpoint {
		path, err := endpoint.Usable(r.cfg.Endpoint, r.cfg.CSIAddress, nil)
		if err != nil {
			klog.InfoS("Announcing the driver's own socket", "endpoint", r.cfg.Endpoint, "because", err.Error())
		}
		k.path, k.keeps = path, err == nil
	}
	return k
}

// run looks after the directory until this instance has left, or life ends.
func (k *keeper) run(life context.Context) {
	defer close(k.left)
	defer k.cutShort()
	k.sweep()
	tick := time.NewTicker(endpointLook)
	defer tick.Stop()
	for !k.state.Ended {
		soon, watch := k.timers()
		select {
		case <-life.Done():
			return
		case <-k.hints:
			k.hear()
		case <-tick.C:
			k.take(endpoint.Event{News: endpoint.Hint})
		case <-soon:
			k.take(endpoint.Event{News: endpoint.Rested})
		case <-watch:
			if k.targetRefuses() {
				k.take(endpoint.Event{News: endpoint.Hint})
			}
		case last := <-k.leaves:
			k.sweep()
			news := endpoint.LeavesNow
			if last {
				news = endpoint.LeavesAsLast
			}
			k.take(endpoint.Event{News: news})
		}
	}
}

// timers are when to look again although nothing was heard; nil is never.
func (k *keeper) timers() (soon, watch <-chan time.Time) {
	switch k.waits {
	case endpoint.Soon:
		soon = time.After(soonPause)
	case endpoint.Watch:
		every := watchEvery
		if time.Since(time.Unix(0, k.changed.Load())) > watchFor {
			every = watchRarely
		}
		watch = time.After(every)
	default:
	}
	return soon, watch
}

// hear takes in what the loop or the watch has said.
func (k *keeper) hear() {
	if accepts := k.accepting.Load(); accepts != k.state.Turner {
		news := endpoint.AcceptsNot
		if accepts {
			news = endpoint.Accepts
		}
		k.take(endpoint.Event{News: news})
		return
	}
	k.take(endpoint.Event{News: endpoint.Hint})
}

// take lets Step decide and does what it says, until there is nothing more to do.
func (k *keeper) take(e endpoint.Event) {
	if !k.keeps { // look, and nothing else
		before := k.state.View
		k.state.View = endpoint.Remember(before, k.look(), e.News == endpoint.Rested)
		k.looked(before)
		k.state.Ended = e.News == endpoint.LeavesNow || e.News == endpoint.LeavesAsLast
		return
	}
	for {
		before := k.state
		next, actions := endpoint.Step(before, e)
		k.state, k.waits = next, endpoint.End
		if e.News == endpoint.Looked {
			k.looked(before.View)
		}
		if v := klog.V(4); v.Enabled() && (len(actions) > 0 || e.News != endpoint.Looked) {
			v.InfoS("Endpoint step", "event", e.News, "view", next.View, "actions", actions)
		}
		if len(actions) == 0 {
			return
		}
		var again bool
		if e, again = k.do(actions[0]); !again {
			return
		}
	}
}

// do carries out one action; again says whether it has an outcome.
func (k *keeper) do(a endpoint.Action) (outcome endpoint.Event, again bool) {
	result := func(err error, good, bad endpoint.News) (endpoint.Event, bool) {
		if err != nil {
			k.failed(err)
			return endpoint.Event{News: bad}, true
		}
		return endpoint.Event{News: good}, true
	}
	switch a.Do {
	case endpoint.Look:
		return endpoint.Event{News: endpoint.Looked, View: k.look()}, true
	case endpoint.Pin:
		return result(k.names.Pin(a.ID), endpoint.Pinned, endpoint.NotPinned)
	case endpoint.Ask:
		return endpoint.Event{News: endpoint.Answered, ID: k.ask(k.cut, a.IDs[:])}, true
	case endpoint.Turn:
		err := k.names.Turn(a.From, a.To)
		if err == nil {
			k.sayTurn(a.From, a.To)
		}
		return result(err, endpoint.Turned, endpoint.NotTurned)
	case endpoint.Remove:
		return result(k.names.Remove(a.ID), endpoint.Removed, endpoint.NotRemoved)
	case endpoint.Soon, endpoint.Watch:
		k.waits = a.Do
	case endpoint.End:
	case endpoint.Fault:
		klog.ErrorS(errors.New("an event that does not fit"), "A bug in Holdfast, please report it; carrying on", "state", k.state)
	}
	return endpoint.Event{}, false
}

// failed says once what could not be done. The next look tries again.
func (k *keeper) failed(err error) {
	if errors.Is(err, endpoint.ErrChanged) {
		return
	}
	if k.trouble.news(err.Error(), err) {
		klog.InfoS("The endpoint is looked after as far as it goes; registration goes on", "endpoint", k.path, "because", err.Error())
	}
}

// look reads the directory and finds out who listens.
func (k *keeper) look() endpoint.View {
	l, err := k.names.Read()
	if err != nil {
		if errors.Is(err, endpoint.ErrDirGone) && k.r.driver.DirGone() {
			k.r.fail(err)
		}
		k.failed(err)
		return k.state.View
	}
	v := endpoint.View{Named: l.Named, Link: l.Link}
	if l.Socket != (endpoint.ID{}) {
		v.Socket = endpoint.Inode{ID: l.Socket, Life: k.names.Probe(endpoint.ID{})}
	}
	for i, id := range l.Others[:min(len(l.Others), endpoint.Most)] {
		v.Others[i] = endpoint.Inode{ID: id, Life: v.Socket.Life}
		if id != v.Socket.ID {
			v.Others[i].Life = k.names.Probe(id)
		}
	}
	return v
}

// looked says what happened to the driver, and what only the first look can tell.
func (k *keeper) looked(before endpoint.View) {
	now := k.state.View
	if now != before {
		k.changed.Store(time.Now().UnixNano())
	}
	if last := k.driver.last; now.Socket.Alive() && last != (endpoint.ID{}) && last != now.Socket.ID {
		k.replaced.Store(time.Now().UnixNano())
	}
	if words := k.driver.sees(now.Socket); words != "" {
		klog.InfoS(words, "address", k.r.cfg.CSIAddress)
	}
	k.r.info.led(k.leadsTo(now))
	if now.Link.Kind == endpoint.Foreign && k.announced() && k.accepting.Load() {
		k.giveUp("what stands there is not ours: " + k.names.LinkPath())
	}
}

// targetRefuses probes the driver that the symlink leads to.
func (k *keeper) targetRefuses() bool {
	id := endpoint.ID{}
	if k.state.View.Link.Kind == endpoint.ToName {
		id = k.state.View.Link.ID
	}
	life := k.names.Probe(id)
	return life != endpoint.Listens && life != endpoint.Busy
}

// accepts is told by the loop whenever this instance begins or ceases to accept at
// the registration socket.
func (k *keeper) accepts(yes bool) {
	if k != nil && k.accepting.Swap(yes) != yes {
		k.hint()
	}
}

// expectsSuccessor says that another process of the driver has appeared lately. That is
// how another pod of it begins, whose registrar comes next.
func (k *keeper) expectsSuccessor() bool {
	return k != nil && time.Since(time.Unix(0, k.replaced.Load())) < successorFor
}

func (k *keeper) hint() {
	if k == nil {
		return
	}
	signal(k.hints)
}

// leave tidies up; last says that no other instance lives on this node. It may be
// called again, and does nothing then.
func (k *keeper) leave(last bool) {
	if k == nil {
		return
	}
	select {
	case k.leaves <- last:
	default:
		return
	}
	k.cutShort()
	t := time.NewTimer(tidyFor)
	defer t.Stop()
	select {
	case <-k.left:
	case <-t.C:
	}
}

// watched is what happens in the driver's directory that is a reason to look.
func (k *keeper) watched() watched {
	base := k.names.Base()
	concerns := func(name string) bool { return name == base || strings.HasPrefix(name, "."+base+".") }
	return watched{dir: filepath.Dir(k.r.cfg.CSIAddress), what: "driver's directory", concerns: concerns, hint: k.hint}
}

// sweep removes what a crash has left of ours, and nobody else uses.
func (k *keeper) sweep() {
	if !k.keeps {
		return
	}
	if _, err := k.names.Sweep(tempAge); err != nil && !errors.Is(err, endpoint.ErrDirGone) {
		k.failed(err)
	}
}
