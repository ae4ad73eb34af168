package registrar

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	own "github.com/holdfast-csi/node-driver-registrar/pkg/ownership"
	"github.com/holdfast-csi/node-driver-registrar/pkg/registration"

	"k8s.io/klog/v2"
)

// say writes one line for each transition that an operator must know, and every
// transition for those who ask with --v=4.
func (l *loop) say(before own.State, e own.Event, actions []own.Action) {
	after := l.state
	if before == after && len(actions) == 0 {
		return
	}
	if v := klog.V(4); v.Enabled() {
		v.InfoS("Step", "from", before, "event", e, "to", after, "actions", actions)
	}
	path := ""
	if p := l.r.place.Load(); p != nil {
		path = p.Path()
	}
	switch e.News {
	case own.Adopted:
		klog.InfoS("Took over the registration socket of an older instance, kubelet notices nothing", "path", path, "driver", l.w.name, "endpoint", l.accepted.endpoint)
	case own.Resumed:
		klog.InfoS("The instance that served the registration socket has ended, accepting in its place", "path", path, "driver", l.w.name, "kubelet", stateOf(after.Kubelet))
	case own.Published:
		klog.InfoS("Published the registration socket, kubelet may call now", "path", path, "driver", l.w.name, "endpoint", l.accepted.endpoint, "replacing", replaced(before.Seen.Sight))
	case own.KubeletConfirmed:
		if !after.Accepting {
			break // the acceptor says so
		}
		klog.InfoS("Registered: kubelet has confirmed the driver", "driver", l.w.name, "endpoint", l.accepted.endpoint)
	case own.KubeletRefused:
		if after.Accepting && after.Kubelet == own.Refusing {
			klog.ErrorS(errors.New(l.kubelet.words), "Kubelet refused the driver; still serving, and announcing again", "driver", l.w.name, "endpoint", l.accepted.endpoint, "times", l.kubelet.n)
		}
	case own.KubeletLeft:
		if after.Accepting && after.Kubelet == own.Refusing {
			klog.InfoS("Kubelet asked for the driver and went away without a result; announcing again", "driver", l.w.name)
		}
	case own.Removed:
		klog.InfoS("Removed the registration socket: no other instance is left on this node, kubelet deregisters the driver", "path", path)
	case own.NotGranted:
		if before.Stage == own.Parting {
			klog.InfoS("Another instance lives on this node: the registration socket is left to it", "path", path)
		}
	case own.Saw:
		if before.Accepting && !after.Accepting && after.Phase == own.Running {
			klog.InfoS("Another instance has taken over the registration socket, standing by", "path", path)
		}
		if e.Sight == own.Absent && before.Accepting && before.Seen.Sight != own.Absent && after.Phase == own.Running {
			klog.InfoS("The registration socket was removed, putting it back unless another registrar does", "path", path)
		}
	default:
	}
}

// replaced says in words what a new registration socket was put over.
func replaced(s own.Sight) string {
	switch s {
	case own.Absent:
		return "nothing"
	case own.Mine:
		return "an own one that kubelet has not confirmed"
	case own.Refused:
		return "one on which nobody listened"
	case own.Ours:
		return "that of an older instance"
	case own.Incumbent:
		return "that of a registrar that takes no lock"
	case own.Silent:
		return "one that did not answer"
	case own.Unknown, own.NotSocket, own.DirGone:
	}
	return "one that could not be asked"
}

// silentFor is how long kubelet may take to call before it is said that it has not:
// it acts within a second of the socket's appearance, if it sees it.
const silentFor = 30 * time.Second

// sayIfKubeletIsSilent says that a published socket has not been called, or that a
// call has not come to an end.
func (l *loop) sayIfKubeletIsSilent() {
	waited := time.Since(l.published)
	switch {
	case !l.state.Accepting || l.state.Phase != own.Running || waited < silentFor:
	case l.state.Kubelet == own.Quiet && l.silence.news("quiet", nil):
		klog.InfoS("Kubelet has not called yet. It watches plugins_registry in its own --root-dir: check that this is the directory mounted here, and that its file system delivers inotify events", "path", l.r.place.Load().Path(), "for", waited.Round(time.Second))
	case l.state.Kubelet == own.Asked && waited > hangUpFor && l.silence.news("asked", nil):
		klog.InfoS("Kubelet asked for the driver and has not come to a result: it waits for the driver's NodeGetInfo, see the driver's log", "driver", l.w.name)
	case l.state.Kubelet == own.Confirmed:
		l.silence.over()
	}
}

func (w *worker) sayPeer(p *registration.Peer) {
	id, ours := p.Identity()
	if !ours {
		klog.InfoS("A registrar that takes no lock serves the registration socket; it will remove it by name when it ends", "path", w.place.Path())
		return
	}
	klog.InfoS("Another instance serves the registration socket", "path", w.place.Path(), "host", id.Host, "version", id.Version, "since", id.Started.Format(time.RFC3339), "instance", id.Instance)
}

func newInstance() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}

// told remembers what was said, so that it is said when it changes, and then ever
// more rarely while it lasts. Safe for concurrent use.
type told struct {
	mu     sync.Mutex
	reason string
	err    error
	at     time.Time
	every  time.Duration
}

// news reports whether err is to be said: its reason is new, or has lasted for a
// minute, two, four and so on.
func (t *told) news(reason string, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	switch {
	case t.reason != reason:
		t.reason, t.every = reason, time.Minute
	case time.Since(t.at) < t.every:
		return false
	default:
		t.every *= 2
	}
	t.at = time.Now()
	return true
}

// over says that the trouble has passed, and whether there was any.
func (t *told) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.reason != ""
	t.reason, t.err = "", nil
	return was
}

func (t *told) set(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
}

func (t *told) last() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
