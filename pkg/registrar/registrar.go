// Package registrar keeps one CSI driver registered with kubelet for as long as
// Run runs.
//
// # The flow
//
// A loop turns what happens into events, asks ownership.Step what they mean, and
// hands the answer to a worker, which carries it out and reports the outcome as the
// next event:
//
//	watch, tick, signal ──▶┐                        ┌──▶ worker: driver, lease,
//	kubelet's calls ──────▶ loop ── Step ── actions ┤    look, publish, remove
//	outcome of the work ──▶┘                        └──▶ back-off, exit
//
// Every decision about the registration socket is in pkg/ownership; here is only how
// the world is asked and what is done to it.
//
// # What it promises
//
// It waits for what is late and says what it waits for. Whatever is optional (the
// watch, the lease, the HTTP port) is said once when it fails, and goes on without.
// Run returns within a second of the end of its context.
//
// # Goroutines
//
//   - the loop: the caller of Run; it owns the ownership.State
//   - the worker: started by Run, ends when the loop closes its queue; it owns the
//     place, the lease, the socket that is accepted on and the connection to a peer
//   - one per socket accepted on: started by the worker's publish, ends when the
//     socket is closed; one more after it has been replaced, until kubelet has hung
//     up, or the end of Run
//   - one per held connection to a peer: ends with it
//   - the keeper: looks after the driver's directory, see keeper; ends when this
//     instance has left, or with Run
//   - the informer: compares the node info of a driver that has restarted with what
//     kubelet has; ends with Run
//   - sharing: hears the other instances out, see sharing; one, and one for each of
//     them; all end with Run
//   - the watch on both directories: ends with Run
//   - HTTP, if asked for: see pkg/observe
package registrar

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/pkg/csidriver"
	"github.com/holdfast-csi/node-driver-registrar/pkg/observe"
	"github.com/holdfast-csi/node-driver-registrar/pkg/regsocket"

	"k8s.io/klog/v2"
)

// Config is what a Registrar needs. Paths are absolute.
type Config struct {
	// CSIAddress is the driver's socket as this process sees it.
	CSIAddress string
	// Endpoint is the driver's socket as kubelet sees it, on the host.
	Endpoint string
	// RegistrationDir is the directory that kubelet watches, as this process sees it.
	RegistrationDir string
	// Timeout of one call to the driver.
	Timeout time.Duration
	// DriverWait is how long to wait for the driver's first answer before Run returns
	// an error. Zero is without limit.
	DriverWait time.Duration
	// HTTPEndpoint is the address for /healthz, or empty.
	HTTPEndpoint string
	// EnablePprof adds pprof to HTTPEndpoint.
	EnablePprof bool
	// KeepEndpoint announces a symlink beside the driver's socket, which always leads to
	// a driver that answers, where that is possible.
	KeepEndpoint bool
	// Strict switches off everything that the incumbent does not do, KeepEndpoint
	// included.
	Strict bool
	// Handover shares one listener with the other instances on the node, so that kubelet
	// notices nothing of a takeover from which it would learn nothing.
	Handover bool
	// OnDriverRestart is RestartCompare (also if empty), RestartAlways or RestartNever.
	OnDriverRestart string
	// Version of this program, told to other instances.
	Version string
}

// Registrar registers one driver. Its Run may be called once.
type Registrar struct {
	cfg    Config
	driver *csidriver.Driver
	// place is set once the driver has told its name; HTTP reads it.
	place  atomic.Pointer[regsocket.Place]
	keeper *keeper                 // nil if the driver's directory is not looked after
	info   informer                // idle without a keeper
	share  atomic.Pointer[sharing] // nil if no listener is shared
	shared chan shareEvent
	pid    int // tells it from others in its mount namespace
	// started are the goroutines that Run has started.
	started sync.WaitGroup
	hints   chan struct{} // room for one: something changed, look
	calls   chan call
	// outdated has room for one: what kubelet was told is no longer so.
	outdated chan struct{}
	fatal    chan error // room for one: no restart of anything but this process can help
}

// New validates cfg. It touches nothing outside the process.
func New(cfg Config) (*Registrar, error) {
	if cfg.Endpoint == "" {
		return nil, errors.New("the path of the driver's socket on the host is empty: set --kubelet-registration-path")
	}
	if !filepath.IsAbs(cfg.RegistrationDir) {
		return nil, fmt.Errorf("registration directory %q: not an absolute path", cfg.RegistrationDir)
	}
	driver, err := csidriver.New(csidriver.Config{Address: cfg.CSIAddress, Timeout: cfg.Timeout})
	if err != nil {
		return nil, err
	}
	r := &Registrar{
		cfg: cfg, driver: driver, pid: os.Getpid(),
		hints: make(chan struct{}, 1), calls: make(chan call), shared: make(chan shareEvent), outdated: make(chan struct{}, 1), fatal: make(chan error, 1),
	}
	r.info = informer{r: r, wake: make(chan struct{}, 1)}
	return r, nil
}

// Run keeps the driver registered until ctx is done, then leaves as the others on
// this node need it, and returns nil. An error means that only a restart, or a
// person, can help; the registration socket is then left as it is.
func (r *Registrar) Run(ctx context.Context) error {
	// What Run starts ends with life, which is longer than ctx: leaving takes work.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	started := &r.started
	defer started.Wait()
	defer end()

	if r.cfg.HTTPEndpoint != "" {
		started.Go(func() { r.serveHTTP(ctx) })
	}
	watched := []watched{{dir: r.cfg.RegistrationDir, what: "registration directory", concerns: r.concerns, hint: r.hint}}
	if k := newKeeper(life, r); k != nil {
		r.keeper = k
		started.Go(func() { k.run(life) })
		started.Go(func() { r.info.run(life) })
		watched = append(watched, k.watched())
	}
	started.Go(func() { watch(life, watched) })
	w := newWorker(life, r, started)
	started.Go(w.run)
	return newLoop(r, w).run(ctx)
}

// serveHTTP answers until ctx is done. Without it everything else goes on.
func (r *Registrar) serveHTTP(ctx context.Context) {
	web, err := observe.New(observe.Config{
		Address: r.cfg.HTTPEndpoint, Pprof: r.cfg.EnablePprof, Health: r.health, Say: r.sayHTTP,
	})
	if err == nil {
		err = web.Run(ctx)
	}
	if err != nil {
		klog.ErrorS(err, "No HTTP; registration goes on without it", "address", r.cfg.HTTPEndpoint)
	}
}

// health is what the incumbent's /healthz has always meant: the socket exists.
func (r *Registrar) health() error {
	place := r.place.Load()
	if place == nil {
		return observe.ErrNoSocket
	}
	_, err := place.Stat()
	switch {
	case errors.Is(err, regsocket.ErrAbsent), errors.Is(err, regsocket.ErrDirGone), errors.Is(err, regsocket.ErrNotSocket):
		return observe.ErrNoSocket
	}
	return err
}

func (r *Registrar) sayHTTP(err error) {
	if err == nil {
		klog.InfoS("HTTP is up", "address", r.cfg.HTTPEndpoint)
		return
	}
	klog.ErrorS(err, "No HTTP for now, trying again; registration goes on", "address", r.cfg.HTTPEndpoint)
}

// hint says that the path may have changed.
func (r *Registrar) hint() { signal(r.hints) }

// outdate says that kubelet has to be told anew.
func (r *Registrar) outdate() { signal(r.outdated) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is waiting already
	}
}

// fail ends Run with err.
func (r *Registrar) fail(err error) {
	select {
	case r.fatal <- err:
	default:
	}
}

// concerns says whether a name in the registration directory is one to look at.
func (r *Registrar) concerns(name string) bool {
	p := r.place.Load()
	return p != nil && (name == filepath.Base(p.Path()) || name == filepath.Base(p.LeasePath()))
}

// driverName asks the driver for its name: at its address, or if nobody answers there
// on an inode of its that still has a name.
func (r *Registrar) driverName(ctx context.Context) (string, error) {
	name, err := r.driver.Name(ctx)
	if err != nil && ctx.Err() == nil {
		if other, ok := r.keeper.elsewhere(ctx); ok {
			return other, nil
		}
	}
	return name, err
}
