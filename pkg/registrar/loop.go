package registrar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/pkg/control"
	own "github.com/holdfast-csi/node-driver-registrar/pkg/ownership"
	"github.com/holdfast-csi/node-driver-registrar/pkg/registration"

	"k8s.io/klog/v2"
)

const (
	// tickEvery is how long a change may go unnoticed when every hint is lost.
	tickEvery = time.Second
	// lingerFor is how long a leaver that nobody stands beside goes on serving, if another
	// pod of the driver is starting: Kubernetes ends the old pod as soon as the new one's
	// containers run, some 10 ms before its registrar can take over.
	lingerFor = 400 * time.Millisecond
	// leaveWithin bounds the whole of leaving (I8). Its parts add up to less.
	leaveWithin = 800 * time.Millisecond
)

var errNoAnswerYet = errors.New("the first call is still under way")

// loop owns the state. Everything it does is quick; what may take time is the
// worker's.
type loop struct {
	r         *Registrar
	w         *worker
	state     own.State
	kubelet   patience
	cut       context.CancelFunc // cuts the worker's present job short
	accepted  *holding           // whose calls from kubelet count
	published time.Time          // when that was put at the path
	calledAt  time.Time          // when kubelet last asked
	given     *holding           // the last that was handed over
	away      bool               // Step turns the present call of kubelet's away
	asked     chan<- own.Do      // by whom the listener is wanted, until Step has answered
	lingers   bool               // asked to end, and another is about to take over
	silence   told               // that kubelet does not call
	result    error
	over      bool
}

func newLoop(r *Registrar, w *worker) *loop {
	return &loop{r: r, w: w, state: own.State{Shares: r.cfg.Handover}, kubelet: newPatience(), cut: func() {}}
}

// run is the loop. It returns when Step says Exit.
func (l *loop) run(ctx context.Context) error {
	defer close(l.w.jobs)
	defer func() { l.cut() }()
	defer l.kubelet.stop()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	driverWait := newTimer(l.r.cfg.DriverWait)
	defer driverWait.Stop()
	leave := newTimer(0)
	defer leave.Stop()
	linger := newTimer(0)
	defer linger.Stop()
	asked := ctx.Done()

	l.take(own.Event{News: own.Start})
	for !l.over {
		select {
		case <-asked:
			asked = nil
			leave.Reset(leaveWithin)
			if l.lingers = l.state.Accepting && l.r.keeper.expectsSuccessor(); l.lingers {
				klog.InfoS("Asked to end while another pod of the driver starts: serving until its registrar takes over", "limit", lingerFor)
				linger.Reset(lingerFor)
				break
			}
			l.term()
		case <-linger.C:
			if l.lingers {
				l.term()
			}
		case o := <-l.w.outcomes:
			l.outcome(o)
		case c := <-l.r.calls:
			l.called(c)
		case e := <-l.r.shared:
			l.hears(e)
		case err := <-l.r.fatal:
			l.outcome(outcome{fatal: err})
		case <-l.r.outdated:
			l.take(own.Event{News: own.Outdated})
		case <-l.r.hints:
			l.take(own.Event{News: own.Nudge})
		case <-tick.C:
			l.take(own.Event{News: own.Tick})
			l.sayIfKubeletIsSilent()
		case <-l.kubelet.due():
			l.take(own.Event{News: own.AnnounceDue})
		case <-driverWait.C:
			if l.state.Phase == own.Waiting {
				return fmt.Errorf("the driver at %s did not answer within --driver-wait=%s: %w", l.r.cfg.CSIAddress, l.r.cfg.DriverWait, cmp.Or(l.w.waiting.last(), errNoAnswerYet))
			}
		case <-leave.C:
			klog.InfoS("Leaving took too long, exiting with the registration socket as it is", "limit", leaveWithin)
			return nil
		}
		if l.lingers && !l.state.Accepting { // it has taken over
			l.term()
		}
	}
	return l.result
}

// term begins to leave. The job in hand is cut short; its outcome comes first.
func (l *loop) term() {
	l.lingers = false
	klog.InfoS("Asked to end, leaving")
	l.take(own.Event{News: own.Term})
	if l.state.Stage == own.Staying {
		l.cut()
	}
}

func (l *loop) outcome(o outcome) {
	if o.fatal != nil && l.state.Phase != own.Leaving {
		l.result, l.over = o.fatal, true
		return
	}
	if o.holding != nil {
		l.accepted, l.published = o.holding, time.Now()
		l.kubelet.announced()
		defer close(o.holding.known)
	}
	l.take(o.event)
}

// called takes in one of kubelet's calls, unless it came to a socket that this
// instance has let go or replaced since. It is turned away from one that was handed over,
// and from one that may be another's when this instance has left.
func (l *loop) called(c call) {
	l.away = c.to == l.given || l.state.Shares && l.state.Phase != own.Running
	defer func() { c.away <- l.away }()
	if c.to != l.accepted || !l.state.Accepting {
		return
	}
	switch c.Kind {
	case registration.Asked:
		if !l.state.Giving {
			l.r.info.kubeletAsked()
			l.calledAt = time.Now()
		}
	case registration.Confirmed:
		l.r.info.kubeletConfirmed()
	case registration.Refused:
		l.r.keeper.refused(l.w.life, c.Message, l.calledAt)
	case registration.Left:
	}
	l.take(own.Event{News: l.kubelet.hear(c.Call)})
	if l.kubelet.exhausted() {
		l.take(own.Event{News: own.RefusedTooLong})
	}
}

// hears takes in what another instance wants, or says that kubelet said.
func (l *loop) hears(e shareEvent) {
	l.asked = e.reply
	if e.news != own.Start {
		l.take(own.Event{News: e.news})
	}
	if e.kubelet != "" && l.state.Phase == own.Running && !l.state.Accepting {
		l.take(own.Event{News: overheard(e.kubelet)})
	}
	l.answer(own.Defer) // if Step has not
}

// answer tells the newcomer that asked for the listener.
func (l *loop) answer(do own.Do) {
	if l.asked != nil {
		l.asked <- do
		l.asked = nil
	}
}

func overheard(k control.KubeletState) own.News {
	switch k {
	case control.Asked:
		return own.KubeletAsked
	case control.Confirmed:
		return own.KubeletConfirmed
	case control.Quiet, control.Refused:
	}
	return own.KubeletLeft // not confirmed, whatever a later release means by it
}

func stateOf(k own.Kubelet) control.KubeletState {
	switch k {
	case own.Asked:
		return control.Asked
	case own.Confirmed:
		return control.Confirmed
	case own.Refusing:
		return control.Refused
	case own.Quiet:
	}
	return control.Quiet
}

// take lets Step decide, and sees to its actions.
func (l *loop) take(e own.Event) {
	before := l.state
	next, actions := own.Step(before, e)
	l.state = next
	if before.Accepting && !next.Accepting {
		l.kubelet.forget()
		l.r.info.forget()
	}
	l.r.keeper.accepts(next.Accepting)
	if next.Phase == own.Running && next.Accepting && next.Kubelet != before.Kubelet {
		l.r.share.Load().heard(stateOf(next.Kubelet), l.kubelet.words)
	}
	l.say(before, e, actions)

	var work []own.Action
	for _, a := range actions {
		switch a.Do {
		case own.BackOff:
			l.kubelet.backOff()
		case own.Exit:
			l.over, l.result = true, l.exitError(a.Why)
		case own.Give, own.Decline, own.Defer:
			l.answer(a.Do)
		case own.TurnAway:
			l.away = true
		case own.Fault:
			klog.ErrorS(errors.New("an event that does not fit"), "A bug in Holdfast, please report it; carrying on", "event", e, "state", before)
		case own.AskDriver, own.Join, own.Look, own.Rest, own.Publish, own.Claim, own.Remove, own.StopServing, own.LetGo, own.Goodbye, own.RemoveLease, own.Adopt, own.Resume, own.Yield:
			if a.Do == own.Yield {
				l.given = l.accepted
			}
			work = append(work, a)
		}
	}
	if len(work) > 0 {
		l.send(work)
	}
	if l.state.Orphan && (l.state.Op == own.Looking || l.state.Op == own.Resting || l.state.Op == own.AskingDriver) {
		l.cut() // somebody has to accept, now
	}
}

// send gives the worker its next job. At most one job has an outcome still to come,
// and the queue has room for those that have none.
func (l *loop) send(actions []own.Action) {
	ctx, cut := context.WithCancel(l.w.life)
	if l.state.Op != own.Idle {
		l.cut = cut
	}
	l.w.jobs <- job{ctx: ctx, done: cut, actions: actions}
}

func (l *loop) exitError(why own.Why) error {
	switch why {
	case own.UnfitPath, own.LostDir:
		return l.w.seen.last()
	case own.GivenUp:
		return l.kubelet.verdict(l.accepted.endpoint)
	case own.Left:
	}
	return nil
}

// newTimer is a timer that fires after d, or never if d is not positive.
func newTimer(d time.Duration) *time.Timer {
	if d > 0 {
		return time.NewTimer(d)
	}
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}
