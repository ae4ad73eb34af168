package registrar

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/pkg/endpoint"

	"k8s.io/klog/v2"
)

// What to do when the driver has restarted alone.
const (
	RestartCompare = "compare" // announce again if kubelet would learn anything new
	RestartAlways  = "always"
	RestartNever   = "never"
)

const (
	// infoFor is how long the driver may take to tell its node info before it counts as
	// changed: kubelet then asks for itself, with more patience.
	infoFor = 5 * time.Second
	// infoEvery is how long to wait after a driver that answered with an error.
	infoEvery = 250 * time.Millisecond
	// takeoverFor is how long kubelet may keep node info that has changed: another process
	// of the driver often means that another registrar is about to take over, and announces
	// it anyway.
	takeoverFor = 2 * time.Second
)

// informer knows the node info (NodeGetInfo) that kubelet has, and finds out whether
// the driver that the endpoint leads to still gives the same. Safe for concurrent use.
type informer struct {
	r    *Registrar
	wake chan struct{} // room for one

	mu     sync.Mutex
	leads  endpoint.ID // the inode behind the endpoint, on which a driver listened last
	asked  endpoint.ID // that at kubelet's last GetInfo
	digest string      // of what kubelet has; empty if that is not known
	of     endpoint.ID // the inode whose answer that is, or which gives the same
	due    bool        // kubelet has just confirmed: ask for the digest
	active bool        // kubelet has confirmed what this instance accepts on
}

// run asks and compares until ctx is done.
func (f *informer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
			f.check(ctx)
		}
	}
}

// led is told by the keeper on which inode the driver behind the endpoint listens.
func (f *informer) led(to endpoint.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if to != (endpoint.ID{}) && to != f.leads {
		f.leads = to
		signal(f.wake)
	}
}

// kubeletAsked is told by the loop: NodeGetInfo follows GetInfo.
func (f *informer) kubeletAsked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.active, f.due = f.leads, false, false
}

// kubeletConfirmed is told by the loop.
func (f *informer) kubeletConfirmed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.digest, f.of, f.due, f.active = "", f.asked, true, true
	if f.of == (endpoint.ID{}) { // the keeper had not looked yet
		f.of = f.leads
	}
	signal(f.wake)
}

// inherit takes over from the former acceptor what kubelet has, as a digest.
func (f *informer) inherit(digest string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.digest, f.of, f.due, f.active = digest, endpoint.ID{}, false, true
	if digest == "" { // kubelet has confirmed so lately that it was not asked yet
		f.of, f.due = f.leads, true
	}
	signal(f.wake)
}

// forget is told by the loop when this instance accepts no more.
func (f *informer) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active, f.due = false, false
}

// has is a digest of what kubelet has; empty if that is not known.
func (f *informer) has() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.digest
}

// now asks the driver behind the endpoint for its node info.
func (f *informer) now(ctx context.Context) (string, endpoint.ID, error) {
	f.mu.Lock()
	id := f.leads
	f.mu.Unlock()
	digest, err := f.r.driver.NodeInfo(ctx, func(ctx context.Context) (net.Conn, error) { return f.r.keeper.dial(ctx, id) })
	return digest, id, err
}

// check finds out what kubelet has, if that is due, and whether it is still so.
func (f *informer) check(ctx context.Context) {
	f.mu.Lock()
	leads, of, had, due, active := f.leads, f.of, f.digest, f.due, f.active
	f.mu.Unlock()
	restarted := leads != of && of != endpoint.ID{} // else what was inherited is compared
	mode := f.r.cfg.OnDriverRestart
	wait := takeoverFor
	if !restarted || leads.Made < of.Made {
		wait = 0 // nobody takes over from one that has just done so, nor for an older process
	}
	switch {
	case !active || !due && leads == of:
		return
	case restarted && mode == RestartNever && !due:
		f.mu.Lock()
		f.of = leads
		f.mu.Unlock()
		return
	case restarted && mode != RestartNever && (due || mode == RestartAlways):
		f.outdated(ctx, wait, "Another process of the CSI driver answers: announcing it again")
		return
	}
	digest, now, err := f.ask(ctx)
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	current := f.active && f.digest == had && f.due == due && (f.leads == now || due && now == of)
	if current && (due || err == nil && digest == had) {
		f.digest, f.of, f.due = digest, now, false
	}
	again := f.leads != now
	f.mu.Unlock()
	if current && due {
		if again { // the driver has restarted since
			signal(f.wake)
		}
		f.r.share.Load().knows(digest)
	}
	switch {
	case !current:
		signal(f.wake) // kubelet or the driver has moved on
	case due && err != nil:
		klog.V(2).InfoS("The driver's node info is not known; it counts as changed at the driver's next restart", "because", err.Error())
	case due, mode == RestartNever:
	case err != nil:
		f.outdated(ctx, wait, "The CSI driver that answers now is another process, and its node info cannot be compared: announcing it again, so that kubelet asks", "because", err.Error())
	case digest != had:
		f.outdated(ctx, wait, "The CSI driver that answers now gives other node info: announcing it again, so that kubelet learns it")
	case restarted:
		klog.InfoS("Another process of the CSI driver answers, with the same node info: kubelet need not know")
	}
}

// ask asks again after an error, for infoFor in all.
func (f *informer) ask(ctx context.Context) (digest string, of endpoint.ID, err error) {
	ctx, cancel := context.WithTimeout(ctx, infoFor)
	defer cancel()
	for {
		if digest, of, err = f.now(ctx); err == nil {
			return digest, of, nil
		}
		pause(ctx, infoEvery)
		if ctx.Err() != nil {
			return "", of, err
		}
	}
}

// outdated has kubelet told anew, after wait, unless another instance does so meanwhile.
func (f *informer) outdated(ctx context.Context, wait time.Duration, words string, args ...any) {
	pause(ctx, wait)
	f.mu.Lock()
	active := f.active
	f.active = false // until kubelet has confirmed the next
	f.mu.Unlock()
	if !active || ctx.Err() != nil {
		return
	}
	klog.InfoS(words, args...)
	f.r.outdate()
}
