package kubelet_test

import (
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// TestIncumbentLosesTheDriver shows the fault that Holdfast is for, and that
// this harness sees it: two incumbents overlap, the old one leaves, and the
// CSINode lacks the driver although the new one lives.
func TestIncumbentLosesTheDriver(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver()
	old := n.Start(harness.Incumbent)
	n.AwaitAcceptor(soon, old)
	n.AwaitRegistered(soon)

	newer := n.Start(harness.Incumbent)
	began := n.AwaitAcceptor(soon, newer).Started
	old.Terminate()
	n.AwaitGone(soon)
	gone := time.Now()
	n.AwaitQuiet(5*time.Second, patient)

	if !newer.Running() {
		t.Error("the new incumbent ended; it should live on, unregistered")
	}
	if n.Registered() {
		t.Error("the driver came back by itself")
	}
	if out := n.CSINode.OutFor(n.Driver, gone, time.Now()); out < 5*time.Second {
		t.Errorf("the CSINode lacked the driver for only %v", out)
	}
	if _, removes := n.FileEvents(began); removes < 2 {
		t.Errorf("kubelet saw %d removes, want that of the new one's start and that of the old one's end", removes)
	}
	n.AssertLeft()
	newer.Kill()
}

// TestIncumbentAlone is the peer's own contract, which the other scenarios with
// an incumbent rely on.
func TestIncumbentAlone(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver("--node-id=one")
	p := n.Start(harness.Incumbent)
	n.AwaitRegistered(soon)
	n.AwaitNodeID("one", soon)
	p.AwaitSaid("registered", soon)
	p.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestIncumbentEndsWhenRefused: exit 1 at Notify(false), the path left behind.
func TestIncumbentEndsWhenRefused(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver("--node-info-failures=1")
	p := n.Start(harness.Incumbent)
	if code := p.AwaitExit(soon); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	n.AssertLeft("hold.example.com-reg.sock")
}
