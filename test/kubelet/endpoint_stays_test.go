package kubelet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// TestRegistrarAloneAfterSurge: after a surge csi.sock is gone, and the driver lives on
// under its second name. Its registrar restarts alone: the driver is reached all the
// time, and registered again at the same endpoint.
func TestRegistrarAloneAfterSurge(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*harness.Proc){
		"terminated": func(p *harness.Proc) { p.Terminate() },
		"killed":     (*harness.Proc).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			n.StartKubelet()
			last, _ := surge.run(n, holdfast, holdfast.start(n, "first"), 1)
			n.AwaitReached(n.Endpoint, soon, last.driver)
			if _, err := os.Lstat(n.Socket); err == nil {
				n.Fatalf("csi.sock is there: this is no test")
			}
			for range 3 {
				watch := n.WatchEndpoint(n.Endpoint)
				began := n.Mark("the registrar ends")
				end(last.registrar)
				n.AssertDir()
				last.registrar = n.Start(harness.Ours)
				n.AwaitAcceptor(soon, last.registrar)
				n.AwaitCall("register", false, began, soon)
				n.AwaitNodeID("surge-1", soon)
				n.AwaitQuiet(onePair, soon)
				n.AwaitRegistered(soon)
				if o := watch.Stop(); len(o) > 0 {
					n.Errorf("outages: %v", o)
				}
				if got := n.Announced(); got != n.Endpoint {
					n.Errorf("kubelet was told %s, want %s", got, n.Endpoint)
				}
			}
			// Its next start binds csi.sock again.
			last.driver.Kill()
			back := n.StartDriver()
			n.AwaitReached(n.Endpoint, soon, back)
			back.Terminate()
			last.registrar.Terminate()
			n.AssertLeft()
			n.AssertDir()
		})
	}
}

// TestRollBackWithVolumes: a mounted volume keeps the endpoint that it began with (K9),
// also when the registrar is an incumbent by then, which announces csi.sock and knows
// nothing of the symlink. That leads to csi.sock, for as long as that is a driver's.
//
// What cannot be helped: in an overlap with a driver that removes csi.sock by name, its
// successor's, when the last of our registrars has ended. Then kubelet cannot reach the
// driver at the incumbent's endpoint either. The next start of a driver heals both.
func TestRollBackWithVolumes(t *testing.T) {
	t.Parallel()
	tidy := []string{"--unlink=false"}
	for name, end := range map[string]func(pod){
		"surge, all ends at once": pod.end,
		"surge, the driver ends first": func(p pod) {
			p.driver.Terminate()
			p.registrar.Terminate()
		},
		"surge, the registrar ends first": func(p pod) {
			p.registrar.Terminate()
			p.driver.Terminate()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			n.StartKubelet()
			first := holdfast.start(n, "first", tidy...)
			volume := n.Announced()
			if volume != n.Endpoint {
				n.Fatalf("kubelet was told %s, want %s", volume, n.Endpoint)
			}
			watch := n.WatchEndpoint(volume)
			began := time.Now()
			last := incumbent.start(n, "back", tidy...)
			n.Mark("the old pod ends")
			end(first)
			n.AwaitQuiet(onePair, patient)
			n.AwaitReached(volume, soon, last.driver)
			checkOutages(n, watch.Stop(), began)
			if got := n.Announced(); got != n.Socket {
				n.Errorf("kubelet was told %s, want %s", got, n.Socket)
			}
			again(n, volume, last.driver)
			last.registrar.Terminate()
		})
	}
	// The usual driver, and no overlap: nothing leads elsewhere than to csi.sock.
	t.Run("one after the other", func(t *testing.T) {
		t.Parallel()
		n := harness.New(t, bin)
		n.StartKubelet()
		first := holdfast.start(n, "first")
		volume := n.Announced()
		first.end()
		n.AwaitGone(soon)
		last := incumbent.start(n, "back")
		n.AwaitReached(volume, soon, last.driver)
		again(n, volume, last.driver)
		last.registrar.Terminate()
	})
}

// again restarts the driver twice: the volume's endpoint follows it.
func again(n *harness.Node, volume string, driver *harness.Proc) {
	for range 2 {
		driver.Terminate()
		driver = n.StartDriver()
		n.AwaitReached(volume, soon, driver)
	}
	if got, err := os.Readlink(volume); err != nil || got != filepath.Base(n.Socket) {
		n.Errorf("the symlink leads to %s, %v; want %s", got, err, filepath.Base(n.Socket))
	}
}

// TestPodsLeaveInAnyOrder: three generations of pods, whose drivers remove csi.sock by
// name, leave in any order, driver or registrar first. While a registrar and a driver
// live, the endpoint leads to one that answers, and what the last registrar leaves is
// the symlink and what answers.
func TestPodsLeaveInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		for _, driverStarts := range []string{"before", "after"} {
			t.Run(fmt.Sprintf("%v, drivers start %s registrars", order, driverStarts), func(t *testing.T) {
				t.Parallel()
				n := harness.New(t, bin)
				for _, driverEnds := range []string{"first", "last"} {
					n.Mark("they leave in the order %v, drivers %s", order, driverEnds)
					var pods []pod
					for i := range order {
						pods = append(pods, startEither(n, driverStarts == "before", i))
					}
					for i, which := range order {
						p := pods[which]
						pods[which] = pod{}
						leaveEither(n, p, driverEnds == "first", pods, i == len(order)-1)
					}
				}
				// A driver that ends when no registrar is left leaves its second name, until
				// the next one comes.
				startEither(n, true, 3).end()
				n.Await("an empty directory", soon, func() bool { return n.DirTrouble() == "" })
				if got := n.Listing(); len(got) != 1 {
					n.Errorf("in the driver's directory: %q, want the symlink alone", got)
				}
				n.AssertLeft()
			})
		}
	}
}

// startEither starts a pod, the driver before the registrar or after it, and waits for
// its place.
func startEither(n *harness.Node, driverFirst bool, i int) (p pod) {
	if driverFirst {
		p.driver = n.StartDriver(fmt.Sprint("--node-id=", i))
	}
	p.registrar = n.Start(harness.Ours)
	if !driverFirst {
		p.registrar.AwaitSaid("", soon) // it is up
		p.driver = n.StartDriver(fmt.Sprint("--node-id=", i))
	}
	n.AwaitAcceptor(soon, p.registrar)
	n.AwaitNamed(soon)
	n.AwaitReached(n.Endpoint, soon, p.driver)
	return p
}

// leaveEither ends one pod of several.
func leaveEither(n *harness.Node, p pod, driverFirst bool, others []pod, last bool) {
	var drivers []*harness.Proc
	for _, o := range others {
		if o.driver != nil {
			drivers = append(drivers, o.driver)
		}
	}
	if driverFirst {
		p.driver.Terminate()
		if !last {
			n.AwaitReached(n.Endpoint, soon, drivers...)
		}
		p.registrar.Terminate()
	} else {
		p.registrar.Terminate()
		n.AwaitReached(n.Endpoint, soon, append(drivers, p.driver)...)
	}
	if last {
		n.AssertDir()
		n.AssertLeft()
	}
	if !driverFirst {
		p.driver.Terminate()
	}
	if !last {
		n.AwaitReached(n.Endpoint, soon, drivers...)
		n.Await("only the symlink and what answers", soon, func() bool { return n.DirTrouble() == "" })
	}
}
