package e2e_test

import (
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/kit"
)

// tidy drivers leave a successor's socket alone when they stop.
var tidy = []string{"--unlink=false"}

// TestSurge: rollout restart with maxSurge 1, maxUnavailable 0. Without a
// minReadySeconds it is a race, which the peer survives on a busy machine: when its
// old pod removes the socket before the new one binds. So it has more than one try.
func TestSurge(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		old := r.Register(kit.Plugin{Name: "node", Registrar: w.image(), Surge: true, DriverArgs: tidy})
		load := r.StartLoad()
		since := r.Restart("node")
		r.AwaitRolled("node", patient, old)
		for range 4 {
			if w == holdfast || !survived(r) {
				break
			}
			t.Logf("the peer's old pod was gone before the new one bound: once more")
			old = r.AwaitReady("node", soon)
			since = r.Restart("node")
			r.AwaitRolled("node", patient, old)
		}
		judge(t, r, w, load, since)
	})
}

// TestSurgeMinReady: the same, and both pods live together for five seconds.
func TestSurgeMinReady(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		old := r.Register(kit.Plugin{Name: "node", Registrar: w.image(), Surge: true, MinReady: 5, DriverArgs: tidy})
		load := r.StartLoad()
		since := r.Restart("node")
		r.AwaitRolled("node", patient, old)
		judge(t, r, w, load, since)
	})
}

// TestCopy: the DaemonSet is copied under a second name, with the same csi.sock,
// and the copy deleted. The first pod's socket is a file without a name since the
// copy bound its own, so nothing mounts after it, with any registrar: its driver
// does not notice. What is judged is the registration; what pods get is only said.
func TestCopy(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		r.Register(kit.Plugin{Name: "node", Registrar: w.image(), DriverArgs: tidy})
		load := r.StartLoad()
		since := r.Apply(kit.Plugin{Name: "copy", Registrar: w.image(), DriverArgs: tidy})
		r.AwaitReady("copy", soon)
		r.Watch(3 * time.Second) // kubelet takes note of the second one
		r.Delete("copy")
		r.AwaitNoPods("copy", patient)
		if w == peer {
			mustLose(t, r)
		} else {
			mustKeep(t, r, w, settle)
			r.Watch(lossWatch - 2*settle)
			mustHave(t, r)
		}
		say(t, r, since)
		t.Logf("%s", load.Stop(5*time.Second))
		r.EndReport()
		// The way out: a restart binds the socket anew.
		old := r.Ready("node")
		r.Restart("node")
		r.AwaitRolled("node", patient, old...)
		r.AwaitRegistered(soon)
	})
}

// TestCopyAndDelete: the DaemonSet is copied under a second name with a csi.sock
// of its own, and the copy deleted.
func TestCopyAndDelete(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		r.Register(kit.Plugin{Name: "node", Registrar: w.image(), DriverArgs: tidy})
		load := r.StartLoad()
		since := r.Apply(kit.Plugin{Name: "copy", Registrar: w.image(), DriverArgs: tidy, Socket: "copy.sock"})
		r.AwaitReady("copy", soon)
		r.Watch(3 * time.Second) // kubelet takes note of the second one
		r.Delete("copy")
		r.AwaitNoPods("copy", patient)
		judge(t, r, w, load, since)
	})
}

// TestRecreateSidecar: the DaemonSet is deleted in the background and made again
// at once; its driver is slow to stop, and the registrar, a native sidecar, gets
// its SIGTERM only then.
func TestRecreateSidecar(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		p := kit.Plugin{Name: "node", Registrar: w.image(), Sidecar: true, DriverArgs: append([]string{"--stop-delay=8s"}, tidy...)}
		old := r.Register(p)
		load := r.StartLoad()
		since := r.Delete("node")
		r.Apply(p)
		r.AwaitRolled("node", patient, old)
		judge(t, r, w, load, since)
	})
}

// TestRecreate: the same with ordinary containers, which all get SIGTERM at once.
// Neither loses the driver.
func TestRecreate(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		p := kit.Plugin{Name: "node", Registrar: w.image(), DriverArgs: append([]string{"--stop-delay=8s"}, tidy...)}
		old := r.Register(p)
		load := r.StartLoad()
		since := r.Delete("node")
		r.Apply(p)
		r.AwaitRolled("node", patient, old)
		mustKeep(t, r, w, settle)
		say(t, r, since)
		mustServe(t, load, 5*time.Second)
	})
}

// TestForegroundDelete: the same, deleted in the foreground, and made again when
// all is gone: what operators do instead. There is no overlap, but the driver is
// away for as long as it is slow to stop.
func TestForegroundDelete(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		p := kit.Plugin{Name: "node", Registrar: w.image(), DriverArgs: append([]string{"--stop-delay=8s"}, tidy...)}
		r.Register(p)
		load := r.StartLoad()
		since := r.DeleteForeground("node", patient)
		r.Apply(p)
		r.AwaitReady("node", soon)
		mustKeep(t, r, w, settle)
		say(t, r, since)
		mustServe(t, load, 20*time.Second)
	})
}

// TestRolling: a rolling update without surge: the old pod goes first.
func TestRolling(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		old := r.Register(kit.Plugin{Name: "node", Registrar: w.image(), DriverArgs: tidy})
		load := r.StartLoad()
		since := r.Restart("node")
		r.AwaitRolled("node", patient, old)
		mustKeep(t, r, w, settle)
		say(t, r, since)
		mustServe(t, load, 10*time.Second)
	})
}

// TestSurgeUnlinked: a surge with a driver that removes its successor's socket by
// name when it stops, as Go servers do unless told otherwise. It says what comes
// of that, with a registration that is perfect too; no registrar helps here yet.
func TestSurgeUnlinked(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		old := r.Register(kit.Plugin{Name: "node", Registrar: w.image(), Surge: true})
		load := r.StartLoad()
		since := r.Restart("node")
		r.AwaitRolled("node", patient, old)
		r.Watch(lossWatch / 2)
		t.Logf("in the CSINode: %v", r.CSINode.Last().Present)
		say(t, r, since)
		t.Logf("%s", load.Stop(time.Second))
	})
}
