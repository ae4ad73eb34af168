package kubelet_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// sock and lease are the names that a registrar of ours may leave in the
// registration directory.
const (
	sock  = "hold.example.com-reg.sock"
	lease = ".hold.example.com-reg.lease"
)

// onePair is what one unregister and register of kubelet takes, and some: it acts
// once a second (measured: 1.0 s). How long the driver may have been out of the
// CSINode for it allows for a busy machine; that it was one pair is counted.
const (
	onePair       = 2500 * time.Millisecond
	onePairAtMost = 2 * onePair
)

// mode is a value of --handover.
type mode struct {
	name string
	// takeover is how many creates of the socket kubelet sees of one from which it learns
	// nothing: each costs one pair of unregister and register.
	takeover int
}

var (
	silent    = mode{"auto", 0}
	announced = mode{"announce", 1}
)

// inBothModes runs a scenario with takeovers that kubelet does not notice, and with
// takeovers that are announced.
func inBothModes(t *testing.T, run func(t *testing.T, m mode)) {
	t.Helper()
	t.Parallel()
	for _, m := range []mode{silent, announced} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			run(t, m)
		})
	}
}

func (m mode) flag() string { return "--handover=" + m.name }

// assertTakeover checks what kubelet saw of one takeover since then.
func (m mode) assertTakeover(n *harness.Node, since time.Time) {
	n.AssertFileEvents(since, m.takeover, 0)
	n.AssertOut(since, time.Duration(m.takeover)*onePairAtMost, m.takeover)
}

// left are the names that an instance which was killed or stands still leaves.
func (m mode) left(n *harness.Node, p *harness.Proc) []string {
	if m == announced {
		return []string{lease, sock}
	}
	return []string{lease, sock, n.Control(p)}
}

// registered is where most scenarios begin: kubelet, a driver, one registrar of
// ours, registered and at rest.
func registered(t *testing.T, m mode) (n *harness.Node, kubelet, driver, ours *harness.Proc) {
	t.Helper()
	n = harness.New(t, bin)
	n.Args = []string{m.flag()}
	kubelet = n.StartKubelet()
	driver = n.StartDriver()
	ours = n.Start(harness.Ours)
	n.AwaitAcceptor(soon, ours)
	n.AwaitRegistered(soon)
	n.AwaitQuiet(500*time.Millisecond, soon)
	return n, kubelet, driver, ours
}

// TestStartAndStop: one create, the driver in the CSINode, and nothing left.
func TestStartAndStop(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			n, _, _, ours := registered(t, silent)
			n.AssertFileEvents(ours.Started, 1, 0)
			n.AwaitNodeID("node", soon)
			if st, err := os.Lstat(n.Path); err != nil || st.Mode() != os.ModeSocket|0o600 {
				t.Errorf("registration socket: %v, %v; want a socket of mode 0600", st.Mode(), err)
			}
			if !n.HoldsLease(ours) {
				t.Error("it serves without the lease")
			}
			stop := time.Now()
			ours.Signal(sig)
			if code := ours.AwaitExit(soon); code != 0 {
				t.Errorf("exit %d after %v, want 0", code, sig)
			}
			n.AwaitGone(soon)
			n.AssertFileEvents(stop, 0, 1)
			n.AssertLeft()
		})
	}
}

// TestExitAlone: SIGTERM to exit waits for nothing when nobody else is there.
// Not parallel, so that the machine is free for it; the median of nine, since
// one measurement says little.
func TestExitAlone(t *testing.T) {
	n := harness.New(t, bin)
	n.StartDriver()
	var took []time.Duration
	for range 9 {
		p := n.Start(harness.Ours)
		n.AwaitAcceptor(soon, p)
		took = append(took, p.Terminate())
		n.AssertLeft()
	}
	middle := median(took)
	t.Logf("SIGTERM to exit: median %v of %v", middle, took)
	// It takes some 5 ms, which make bench measures; a wait for nobody would take 250.
	if middle >= 200*time.Millisecond {
		t.Errorf("median %v from SIGTERM to exit: what does it wait for?", middle)
	}
}

// TestStopWhileWaitingForTheDriver: exit 0 in under 1 s whatever the driver does.
func TestStopWhileWaitingForTheDriver(t *testing.T) {
	t.Parallel()
	t.Run("absent", func(t *testing.T) {
		t.Parallel()
		n := harness.New(t, bin)
		p := n.Start(harness.Ours)
		p.AwaitSaid("", soon) // it is up
		n.AwaitQuiet(time.Second, soon)
		p.Terminate()
		n.AssertLeft()
	})
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		n := harness.New(t, bin)
		d := n.StartDriver()
		d.Freeze()
		p := n.Start(harness.Ours)
		p.AwaitSaid("", soon)
		n.AwaitQuiet(time.Second, soon)
		p.Terminate()
		n.AssertLeft()
	})
}

// TestDriverLate: a driver that is 45 s late is waited for by the same process.
func TestDriverLate(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	ours := n.Start(harness.Ours)
	n.StartLateDriver("--start-delay=45s")
	n.AwaitAcceptor(45*time.Second+soon, ours)
	n.AwaitRegistered(soon)
	n.AssertFileEvents(ours.Started, 1, 0)
	ours.Terminate()
	n.AssertLeft()
}

// TestDriverSlow: a driver that answers later than --timeout is asked again and
// again, without an exit; with a longer --timeout it is registered.
func TestDriverSlow(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	d := n.StartDriver("--identity-delay=3s")
	impatient := n.Start(harness.Ours)
	n.Await("three questions", patient, func() bool { return d.Said("GetPluginInfo") >= 3 })
	if creates, _ := n.FileEvents(impatient.Started); creates > 0 {
		t.Error("published without the driver's answer")
	}
	calm := n.Start(harness.Ours, "--timeout=10s")
	n.AwaitAcceptor(patient, calm)
	n.AwaitRegistered(soon)
	impatient.Terminate()
	calm.Terminate()
	n.AssertLeft()
}

// TestNodeGetInfoSlow: while kubelet waits for NodeGetInfo it is left alone.
func TestNodeGetInfoSlow(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	d := n.StartDriver("--node-info-delay=15s")
	ours := n.Start(harness.Ours)
	n.AwaitRegistered(patient)
	n.AwaitQuiet(onePair, soon)
	n.AssertFileEvents(ours.Started, 1, 0)
	if got := d.Said("NodeGetInfo"); got != 1 {
		t.Errorf("the driver was asked %d times for NodeGetInfo, want once", got)
	}
	ours.Terminate()
	n.AssertLeft()
}

// TestRefusedFirst: kubelet's refusals do not end the process; it announces
// again until kubelet is content. Kubelet v1.34 never tries again by itself.
func TestRefusedFirst(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver("--node-info-failures=3")
	ours := n.Start(harness.Ours)
	n.AwaitCall("register", true, ours.Started, soon)
	n.AwaitRegistered(patient)
	n.AwaitQuiet(onePair, soon)
	if !n.Registered() {
		t.Error("registered, but it did not last")
	}
	n.AwaitAcceptor(soon, ours)
	ours.AwaitSaid("node info is not known yet", soon) // kubelet's words
	ours.Terminate()
	n.AssertLeft()
}

// TestRefusedForAMinute: then it exits 1, with kubelet's words as the reason, and
// leaves the path as it is.
func TestRefusedForAMinute(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver("--node-info-failures=1000000")
	ours := n.Start(harness.Ours)
	refused := n.AwaitCall("register", true, ours.Started, soon)
	if code := ours.AwaitExit(2 * time.Minute); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	if took := time.Since(refused.At); took < 55*time.Second || took > 80*time.Second {
		t.Errorf("exit %v after the first refusal, want about 60 s", took.Round(time.Second))
	}
	ours.AwaitSaid("node info is not known yet", soon)
	n.AssertLeft(lease, sock)
}

// TestGracefulDriver: a driver that stops gracefully waits for no connection of
// ours, not the acceptor's and not a standby's, and its end is no reason to let
// go of the registration.
func TestGracefulDriver(t *testing.T) { inBothModes(t, gracefulDriver) }

func gracefulDriver(t *testing.T, m mode) {
	n, _, driver, standby := registered(t, m)
	ours := n.Start(harness.Ours)
	n.AwaitAcceptor(soon, ours)
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(soon)

	began := n.Mark("the driver stops")
	if took := driver.Terminate(); took > 500*time.Millisecond {
		t.Errorf("the driver took %v to stop", took.Round(time.Millisecond))
	}
	n.StartDriver()
	n.AwaitQuiet(onePair, soon)
	n.AssertOut(began, 0, 0) // the next one has the same node info
	n.AssertFileEvents(began, 0, 0)
	n.AwaitRegistered(soon)
	standby.Terminate()
	ours.Terminate()
	n.AssertLeft()
}

// TestThirtyDrivers: thirty drivers on one node know nothing of each other.
func TestThirtyDrivers(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	var plugins []*harness.Plugin
	var ours []*harness.Proc
	for i := range 30 {
		pl := n.AddPlugin(fmt.Sprintf("hold-%d.example.com", i))
		pl.StartLateDriver("--node-id=" + fmt.Sprint("node-", i))
		plugins = append(plugins, pl)
		ours = append(ours, pl.Start(harness.Ours))
	}
	for i, pl := range plugins {
		pl.AwaitRegistered(time.Minute)
		pl.AwaitNodeID(fmt.Sprint("node-", i), soon)
		pl.AwaitAcceptor(soon, ours[i])
		pl.AssertFileEvents(ours[i].Started, 1, 0)
	}
	for _, p := range ours {
		p.SendTerm()
	}
	for _, p := range ours {
		if code := p.AwaitExit(soon); code != 0 { // not Terminate: thirty at once on a busy machine
			t.Errorf("%s: exit %d, want 0", p.Name, code)
		}
	}
	n.AssertLeft()
	for _, pl := range plugins {
		pl.AwaitGone(soon)
	}
}
