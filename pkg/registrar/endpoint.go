package registrar

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/pkg/endpoint"

	"k8s.io/klog/v2"
)

// ask asks all of ids at once, until the first zero one, and returns the first in
// their order that answers as this driver. An answer waits no longer than askGrace
// for those before it.
func (k *keeper) ask(ctx context.Context, ids []endpoint.ID) endpoint.ID {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		i  int
		ok bool
	}
	n := 0
	for n < len(ids) && ids[n] != (endpoint.ID{}) {
		n++
	}
	answers := make(chan answer, n)
	for i, id := range ids[:n] {
		go func() {
			_, err := k.name(ctx, id)
			answers <- answer{i, err == nil}
		}()
	}
	best, asked, known := n, n, make([]bool, n)
	var grace <-chan time.Time
	for asked > 0 && !settled(known, best) {
		select {
		case a := <-answers:
			asked--
			known[a.i] = true
			if a.ok && a.i < best {
				best = a.i
				grace = time.After(askGrace)
			}
		case <-grace:
			asked = 0
		}
	}
	if best == n {
		return endpoint.ID{}
	}
	return ids[best]
}

// settled says that everybody before best has been heard.
func settled(known []bool, best int) bool {
	for _, k := range known[:best] {
		if !k {
			return false
		}
	}
	return best < len(known)
}

// name asks the driver on one inode for its name. Another driver's is an error.
func (k *keeper) name(ctx context.Context, id endpoint.ID) (string, error) {
	name, err := k.r.driver.NameVia(ctx, func(ctx context.Context) (net.Conn, error) { return k.dial(ctx, id) })
	if place := k.r.place.Load(); err == nil && place != nil && name != place.Driver() {
		err = errors.New("another driver answers: " + name)
	}
	return name, err
}

// leadsTo is the inode behind what kubelet is told, zero if nobody listens there.
func (k *keeper) leadsTo(v endpoint.View) endpoint.ID {
	at := v.Socket
	if k.announced() && v.Link.Kind == endpoint.ToName {
		for _, o := range v.Others {
			if at = o; o.ID == v.Link.ID {
				break
			}
		}
	}
	if !at.Alive() {
		return endpoint.ID{}
	}
	return at.ID
}

// dial connects to the driver on one inode, by its second name if it has one.
func (k *keeper) dial(ctx context.Context, id endpoint.ID) (net.Conn, error) {
	conn, err := k.names.Dial(ctx, id)
	if err != nil && id != (endpoint.ID{}) {
		if l, readErr := k.names.Read(); readErr == nil && l.Socket == id {
			return k.names.Dial(ctx, endpoint.ID{})
		}
	}
	return conn, err
}

// elsewhere asks the driver on the inodes that csi.sock is no longer a name of.
func (k *keeper) elsewhere(ctx context.Context) (string, bool) {
	if k == nil || !k.announced() {
		return "", false
	}
	l, err := k.names.Read()
	if err != nil {
		return "", false
	}
	for _, id := range l.Others {
		if id == l.Socket {
			continue
		}
		dial := func(ctx context.Context) (net.Conn, error) { return k.names.Dial(ctx, id) }
		if name, err := k.r.driver.NameVia(ctx, dial); err == nil {
			return name, true
		}
	}
	return "", false
}

// announced says whether kubelet is, or would be, told the symlink.
func (k *keeper) announced() bool { return k != nil && k.keeps && !k.plain.Load() }

// announces is what kubelet is, or would be, told.
func (r *Registrar) announces() string {
	if r.keeper.announced() {
		return r.keeper.path
	}
	return r.cfg.Endpoint
}

// endpoint is what to tell kubelet. If it is the symlink, that is there.
func (r *Registrar) endpoint() string {
	k := r.keeper
	if !k.announced() {
		return r.cfg.Endpoint
	}
	if err := k.ensure(); err != nil {
		k.plain.Store(true)
		klog.InfoS("Announcing the driver's own socket", "endpoint", r.cfg.Endpoint, "because", err.Error())
		return r.cfg.Endpoint
	}
	return k.path
}

// ensure makes the symlink if it is not there.
func (k *keeper) ensure() error {
	var err error
	for range 3 { // another instance may be faster
		var l endpoint.Listing
		if l, err = k.names.Read(); err != nil {
			return err
		}
		switch l.Link.Kind {
		case endpoint.ToSocket, endpoint.ToName:
			return nil
		case endpoint.NoLink, endpoint.Foreign:
		}
		if err = k.names.Turn(endpoint.Target{}, endpoint.Target{Kind: endpoint.ToSocket}); err == nil {
			return nil
		}
	}
	return err
}

// refused takes in why kubelet refused what it asked for at that time. If it could not
// dial the symlink although a driver has listened there all along, its path leads
// elsewhere. That nothing has changed in the directory is known only some time later.
func (k *keeper) refused(life context.Context, words string, asked time.Time) {
	if !k.announced() || !strings.Contains(words, k.names.LinkName()) || !strings.Contains(strings.ToLower(words), "dial") {
		return
	}
	k.r.started.Go(func() {
		pause(life, 2*endpointLook)
		l, err := k.names.Read()
		if err == nil && life.Err() == nil && time.Unix(0, k.changed.Load()).Before(asked) && k.names.Probe(l.Link.ID) == endpoint.Listens {
			k.giveUp("kubelet cannot connect to " + k.path + ", where the driver listens as seen from here: kubelet's path leads elsewhere")
		}
	})
}

// giveUp announces the driver's own socket from now on.
func (k *keeper) giveUp(because string) {
	if !k.plain.Swap(true) {
		klog.InfoS("Announcing the driver's own socket until the next start", "endpoint", k.r.cfg.Endpoint, "because", because)
		k.r.outdate()
	}
}

// sayTurn says where kubelet is led now.
func (k *keeper) sayTurn(from, to endpoint.Target) {
	switch {
	case from.Kind == endpoint.NoLink:
		klog.V(2).InfoS("Made the endpoint's own name", "endpoint", k.path)
	case to.Kind == endpoint.ToSocket && !k.state.View.Socket.Alive():
		klog.InfoS("No instance of the driver answers: the endpoint leads to where the next one is expected", "endpoint", k.path, "address", k.r.cfg.CSIAddress)
	case to.Kind == endpoint.ToSocket:
		klog.InfoS("The endpoint leads to the driver's socket again", "endpoint", k.path, "address", k.r.cfg.CSIAddress)
	default:
		klog.InfoS("The driver's socket is gone or dead, and another instance of the driver answers: the endpoint leads to that one", "endpoint", k.path, "address", k.r.cfg.CSIAddress, "instance", k.names.Path(to.ID))
	}
}

// driverWatch says in words when the driver at csi.sock goes, comes or is replaced.
type driverWatch struct {
	last  endpoint.ID // on which it listened
	there bool        // it still does
}

// sees returns what there is to say about what a look found at csi.sock, or nothing.
func (d *driverWatch) sees(now endpoint.Inode) string {
	before := *d
	first := before.last == endpoint.ID{}
	switch {
	case now.Alive():
		*d = driverWatch{last: now.ID, there: true}
		switch {
		case first || before == *d:
		case before.there:
			return "The CSI driver listens on a new socket: it has restarted, or another instance of it has started"
		case before.last == now.ID:
			return "The CSI driver listens again"
		default:
			return "The CSI driver is back, on a new socket"
		}
	case !d.there:
	case now.ID == endpoint.ID{}:
		d.there = false
		return "The CSI driver's socket was removed"
	case now.Dead():
		d.there = false
		return "The CSI driver has ended: nobody listens at its socket any more"
	}
	return ""
}
