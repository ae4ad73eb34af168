package kubelet_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// reachedWithin is ten times what I10 promises: while a registrar lives, and a driver
// answers on an inode that had a name, kubelet reaches one at the announced endpoint
// again. These tests run side by side, with the race detector; make bench measures.
const reachedWithin = 200 * time.Millisecond

// pod is one pod of the driver's DaemonSet.
type pod struct{ driver, registrar *harness.Proc }

// deployment says what pods are made of. Their driver is the usual one: it removes what
// is at csi.sock, binds, and at its end it removes csi.sock by name, whosever that is.
type deployment struct {
	kind harness.Kind
	args []string // the registrar's
}

var (
	holdfast  = deployment{kind: harness.Ours}
	incumbent = deployment{kind: harness.Incumbent}
)

// start starts one pod and waits until kubelet has registered it. Its node ID says
// which one it is.
func (d deployment) start(n *harness.Node, id string, driverArgs ...string) pod {
	p := pod{driver: n.StartDriver(append([]string{"--node-id=" + id}, driverArgs...)...)}
	p.registrar = n.Start(d.kind, d.args...)
	n.AwaitAcceptor(soon, p.registrar)
	n.AwaitNodeID(id, soon)
	n.AwaitRegistered(soon)
	return p
}

// end ends both containers at once, as kubelet does.
func (p pod) end() {
	driver, registrar := p.driver.SendTerm(), p.registrar.SendTerm()
	p.registrar.AwaitTerm(registrar)
	p.driver.AwaitTerm(driver)
}

// rollout is a way in which two pods of a driver overlap on a node. At each moment one
// driver at least listens.
type rollout struct {
	name      string
	firstArgs []string // the first pod's driver's
	// run gives the pod that lives at the end, and the moment since which there has been
	// a registrar all the time.
	run func(n *harness.Node, d deployment, first pod, generations int) (last pod, since time.Time)
}

var (
	surge = rollout{"surge", nil, func(n *harness.Node, d deployment, last pod, generations int) (pod, time.Time) {
		since := time.Now()
		for i := range generations {
			next := d.start(n, fmt.Sprint("surge-", i+1))
			n.Mark("the old pod ends")
			last.end()
			last = next
		}
		return last, since
	}}
	// The first pod's driver has lost its name to the copy's, which takes that along.
	copyAndDelete = rollout{"copy and delete", nil, func(n *harness.Node, d deployment, first pod, generations int) (pod, time.Time) {
		since := time.Now()
		for i := range generations {
			second := d.start(n, fmt.Sprint("copy-", i+1))
			n.Mark("the copy ends")
			second.end()
		}
		return first, since
	}}
	// The same, and all of the copy is killed at once.
	copyAndKill = rollout{"copy and kill", nil, func(n *harness.Node, d deployment, first pod, generations int) (pod, time.Time) {
		since := time.Now()
		for i := range generations {
			second := d.start(n, fmt.Sprint("copy-", i+1))
			n.Mark("the copy is killed")
			second.registrar.Signal(syscall.SIGKILL)
			second.driver.Kill()
			second.registrar.AwaitExit(soon)
		}
		return first, since
	}}
	// A driver alone comes and crashes: no file changes, nobody hangs up.
	crash = rollout{"crash", nil, func(n *harness.Node, _ deployment, first pod, generations int) (pod, time.Time) {
		since := time.Now()
		for range generations {
			second := n.StartDriver()
			n.AwaitNamed(soon)
			n.AwaitReached(n.Endpoint, soon, second)
			n.Mark("it crashes")
			second.Kill()
			n.AwaitReached(n.Endpoint, soon, first.driver)
		}
		return first, since
	}}
	// Deleted in the background and made again at once, by way of slow drivers: the old
	// one takes seconds to stop, its registrar does not.
	recreate = rollout{"delete and recreate", slowToStop, func(n *harness.Node, d deployment, first pod, _ int) (pod, time.Time) {
		stopped := first.registrar.SendTerm()
		next := recreateSlowly(n, d, first, func() { first.registrar.AwaitTerm(stopped) })
		return next.pod, next.since
	}}
	// The same with the registrar as a native sidecar, which ends after the driver.
	recreateSidecar = rollout{"delete and recreate, sidecar", slowToStop, func(n *harness.Node, d deployment, first pod, _ int) (pod, time.Time) {
		since := time.Now()
		next := recreateSlowly(n, d, first, func() {})
		first.registrar.Terminate()
		return next.pod, since
	}}
	slowToStop = []string{"--stop-delay=4s"}
)

// recreateSlowly ends the first pod's driver and starts the next pod at once, whose
// driver has a second between its unlink and its bind.
func recreateSlowly(n *harness.Node, d deployment, first pod, meanwhile func()) (next struct {
	pod
	since time.Time
}) {
	stopped := first.driver.SendTerm()
	next.registrar = n.Start(d.kind, d.args...)
	next.driver = n.StartLateDriver("--node-id=next", "--start-delay=1s", "--bind-delay=1s")
	meanwhile()
	n.AwaitAcceptor(soon, next.registrar)
	next.since = time.Now()
	first.driver.AwaitTerm(stopped)
	if next.driver.Said("serving ") == 0 {
		n.Fatalf("the old driver ended before the new one listened: the test is too slow")
	}
	return next
}

// TestEndpointKept: while pods overlap whose drivers remove each other's csi.sock,
// kubelet reaches a driver at the announced endpoint, with breaks of 20 ms at most.
// What a busy machine adds to each step is taken off, see harness.Outage. Not
// parallel, so that the machine is not busier than need be.
func TestEndpointKept(t *testing.T) {
	for _, r := range []rollout{surge, copyAndDelete, copyAndKill, crash, recreate, recreateSidecar} {
		t.Run(r.name, func(t *testing.T) {
			n := harness.New(t, bin)
			n.StartKubelet()
			first := holdfast.start(n, "first", r.firstArgs...)
			watch := n.WatchEndpoint(n.Announced())
			last, since := r.run(n, holdfast, first, 5)
			n.AwaitQuiet(onePair, patient)
			n.AwaitReached(n.Endpoint, soon, last.driver)
			checkOutages(n, watch.Stop(), since)

			n.AwaitRegistered(soon)
			for _, c := range n.Calls("register", time.Time{}) {
				if c.Error != "" || c.Endpoint != n.Endpoint {
					n.Errorf("kubelet registered the driver at %s: %q; want %s, and no error", c.Endpoint, c.Error, n.Endpoint)
				}
			}
			last.driver.Terminate()
			last.registrar.Terminate()
			n.AwaitGone(soon)
			n.AssertLeft()
			n.AssertDir()
		})
	}
}

// checkOutages wants every one since then to be short.
func checkOutages(n *harness.Node, outages []harness.Outage, since time.Time) {
	worst := harness.Outage{}
	for _, o := range outages {
		if o.To.Before(since) {
			continue
		}
		if o.From.Before(since) {
			o.From = since // it was nobody's to mend before
		}
		if o.Net() > reachedWithin {
			n.Errorf("nobody could be reached at the endpoint for %v, want at most %v", o, reachedWithin)
		}
		if o.Lasted() > worst.Lasted() {
			worst = o
		}
	}
	n.Logf("%d outages, worst %v", len(outages), worst)
}

// TestEndpointLost: with a registrar that announces csi.sock the same loses the driver
// for good, though it lives: the test above can see it.
func TestEndpointLost(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]deployment{
		"keep-endpoint=false": {kind: harness.Ours, args: []string{"--keep-endpoint=false"}},
		"incumbent":           incumbent,
	} {
		for _, r := range []rollout{surge, copyAndDelete} {
			t.Run(name+"/"+r.name, func(t *testing.T) {
				t.Parallel()
				n := harness.New(t, bin)
				n.StartKubelet()
				first := d.start(n, "first", r.firstArgs...)
				if got := n.Announced(); got != n.Socket {
					n.Errorf("kubelet was told %s, want %s", got, n.Socket)
				}
				watch := n.WatchEndpoint(n.Socket)
				last, _ := r.run(n, d, first, 1)
				n.AwaitQuiet(onePair, patient)
				outages := watch.Stop()
				if !last.driver.Running() || !last.registrar.Running() {
					n.Fatalf("the last pod does not run")
				}
				// No driver started or ended in that time, which is two ticks of kubelet's.
				if len(outages) == 0 || outages[len(outages)-1].Lasted() < 2*time.Second || n.Reaches(n.Socket, last.driver) {
					n.Errorf("the driver was not lost: outages %v", outages)
				}
				n.Logf("outages: %v", outages)
				last.driver.Terminate()
				last.registrar.Terminate()
			})
		}
	}
}
