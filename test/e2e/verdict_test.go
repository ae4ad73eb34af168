package e2e_test

import (
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/kit"
)

// settle is how long after the last event of a plugin's pod the driver may be
// out of the CSINode with Holdfast; restarted the same where that event is the
// start of a container: then kubelet unregisters at its next tick, which is up to a
// second later, and registers at the one after that.
const (
	settle    = 2 * time.Second
	restarted = 4 * time.Second
)

// unmounts is how long a pod that was mounted before may take to go, after all.
const unmounts = 5 * time.Second

// lossWatch is how long a loss is watched, so that it is not taken for a gap.
const lossWatch = 10 * time.Second

// mustKeep wants the driver in the CSINode so long after the last pod event, and
// for good. The peer may take longer, where it recovers at all.
func mustKeep(t *testing.T, r *kit.Run, w who, limit time.Duration) {
	t.Helper()
	if w == peer {
		r.AwaitRegistered(lossWatch)
	}
	r.Watch(time.Until(r.LastPodEvent().Add(limit)))
	if last := r.CSINode.Last(); !last.Present {
		t.Errorf("the CSINode has not the driver %v after the last event of a pod", time.Since(r.LastPodEvent()).Round(100*time.Millisecond))
	}
	r.Watch(settle)
	mustHave(t, r)
}

// mustHave wants that nothing happened since.
func mustHave(t *testing.T, r *kit.Run) {
	t.Helper()
	if last := r.CSINode.Last(); !last.Present {
		t.Errorf("the CSINode lost the driver late, at %s", last.At.Format(time.TimeOnly))
	}
}

// survived says, after kubelet had time to take note of all, whether the driver is
// still there.
func survived(r *kit.Run) bool {
	r.Watch(lossWatch / 3)
	return r.CSINode.Last().Present
}

// mustLose wants to see the incumbent's loss, or this test sees nothing.
func mustLose(t *testing.T, r *kit.Run) {
	t.Helper()
	r.Watch(lossWatch)
	last := r.CSINode.Last()
	if last.Present {
		t.Errorf("the peer kept the driver: this test would not see a loss")
		return
	}
	t.Logf("lost, as expected: missing for %.1f s so far", time.Since(last.At).Seconds())
}

// say logs how long the driver was missing since a time.
func say(t *testing.T, r *kit.Run, since time.Time) {
	t.Helper()
	missing, times := r.CSINode.Missing(since)
	t.Logf("%d times out of the CSINode, %.1f s in all", times, missing.Seconds())
}

// mustStay wants that the driver was not out of the CSINode for a moment.
func mustStay(t *testing.T, m *kit.Membership, since time.Time) {
	t.Helper()
	missing, times := m.Missing(since)
	t.Logf("%d ms out of the CSINode", missing.Milliseconds())
	if times > 0 {
		t.Errorf("%d times out of the CSINode, want never", times)
	}
}

// mustServe wants no pod stuck, mounting or going, and that a pod which was mounted
// before goes within unmounts.
func mustServe(t *testing.T, load *kit.Load, limit time.Duration) kit.Result {
	t.Helper()
	result := load.Stop(limit)
	t.Logf("%s", result)
	if len(result.StuckMounting)+len(result.StuckGoing) > 0 {
		t.Errorf("pods are stuck")
	}
	if took, err := load.DeleteKept(unmounts); err != nil {
		t.Error(err)
	} else {
		t.Logf("a pod that was mounted before went in %.1f s", took.Seconds())
	}
	return result
}

// mustFail wants a pod that could not mount.
func mustFail(t *testing.T, result kit.Result) {
	t.Helper()
	t.Logf("%s", result)
	if len(result.StuckMounting) == 0 || result.FailedMounts == 0 {
		t.Errorf("no pod failed to mount: this test would not see a loss")
	}
}

// judge is the verdict of a case in which the peer loses the driver for good, and
// with Holdfast nobody notices anything: kubelet, the pods that mount and those that
// go.
func judge(t *testing.T, r *kit.Run, w who, load *kit.Load, since time.Time) {
	t.Helper()
	if w == peer {
		mustLose(t, r)
		mustFail(t, load.Stop(5*time.Second))
		return
	}
	r.Watch(lossWatch) // for as long as the peer
	mustStay(t, r.CSINode, since)
	mustNotNotice(t, mustServe(t, load, 5*time.Second))
}

// mustNotNotice wants that no pod had trouble with its volume, and at most one a delay.
func mustNotNotice(t *testing.T, result kit.Result) {
	t.Helper()
	if result.FailedMounts > 0 {
		t.Errorf("%d FailedMount events, want none", result.FailedMounts)
	}
	if result.Delayed > 1 {
		t.Errorf("%d pods were delayed, want at most one", result.Delayed)
	}
}

// judgeNews is the verdict where kubelet has something to learn: it unregisters and
// registers, which takes about a second.
func judgeNews(t *testing.T, r *kit.Run, w who, load *kit.Load, since time.Time) {
	t.Helper()
	if w == peer {
		judge(t, r, w, load, since)
		return
	}
	mustKeep(t, r, w, settle)
	r.Watch(lossWatch - 2*settle) // for as long as the peer
	mustHave(t, r)
	say(t, r, since)
	mustServe(t, load, 5*time.Second)
}
