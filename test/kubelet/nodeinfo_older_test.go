package kubelet_test

import (
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// TestNodeInfoOfAnOlderPod: two pods overlap with node info of their own each, and the
// newest leaves, however that ends. Kubelet learns that of the older one, which takes
// over again, and never keeps that of the pod that has left.
func TestNodeInfoOfAnOlderPod(t *testing.T) {
	t.Parallel()
	for name, end := range podEnds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			stall := n.MeasureStall()
			n.StartKubelet()
			first := holdfast.start(n, "one")
			n.AwaitNamed(soon)
			second := otherPod(n, stall, "two")
			n.Mark("the newest leaves")
			end(second)
			assertLearnt(n, stall, "one", second.driver.Ended(), learntFromPod)
			n.AwaitAcceptor(soon, first.registrar)
			n.AwaitReached(n.Announced(), soon, first.driver)
			first.end()
			n.AwaitGone(soon)
			n.AssertLeft()
		})
	}
}

// TestAlwaysIsForRestarts: with --on-driver-restart=always a restart of the driver is
// announced, and not that another registrar accepts.
func TestAlwaysIsForRestarts(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.Args = []string{"--on-driver-restart=always"}
	n.StartKubelet()
	n.StartDriver()
	old := n.Start(harness.Ours)
	n.AwaitRegistered(soon)
	n.AwaitQuiet(onePair, patient)
	began := time.Now()
	newer := n.Start(harness.Ours)
	n.AwaitAcceptor(soon, newer)
	newer.AwaitSaid(tookOver, soon)
	assertUnnoticed(n, began)
	newer.Terminate()
	n.AwaitAcceptor(soon, old)
	assertUnnoticed(n, began)
	old.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}
