package e2e_test

import (
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/kit"
)

// The driver of these cases removes csi.sock by name when it stops, also when its
// successor listens there by then, as Go servers do unless told otherwise. A tidy one
// leaves its successor's alone: then what the peer loses is lost by the registrar.
var tidy = []string{"--unlink=false"}

// slow drivers go on serving for a while after SIGTERM.
var slow = []string{"--stop-delay=8s"}

// TestSurge: rollout restart with maxSurge 1, maxUnavailable 0.
func TestSurge(t *testing.T) { both(t, surge(nil)) }

// TestSurgeTidy: the same with a tidy driver.
func TestSurgeTidy(t *testing.T) { both(t, surge(tidy)) }

// Without a minReadySeconds it is a race, which the peer's registration survives on a
// busy machine: when its old pod removes the socket before the new one binds. So it
// has more than one try.
func surge(driver []string) func(*testing.T, *kit.Run, who) {
	return func(t *testing.T, r *kit.Run, w who) {
		old := r.Register(kit.Plugin{Name: "node", Registrar: w.image(), Surge: true, DriverArgs: driver})
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
	}
}

// TestSurgeMinReady: the same, and both pods live together for five seconds.
func TestSurgeMinReady(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		old := r.Register(kit.Plugin{Name: "node", Registrar: w.image(), Surge: true, MinReady: 5})
		load := r.StartLoad()
		since := r.Restart("node")
		r.AwaitRolled("node", patient, old)
		judge(t, r, w, load, since)
	})
}

// TestSurgeWithout: a surge with half of Holdfast switched off, to see what that half
// is for.
func TestSurgeWithout(t *testing.T) {
	run := func(t *testing.T, flag string) (r *kit.Run, load *kit.Load, since time.Time) {
		t.Helper()
		r = kit.New(t, cluster)
		old := r.Register(kit.Plugin{Name: "node", Registrar: holdfast.image(), Surge: true, MinReady: 5, RegistrarArgs: []string{flag}})
		load = r.StartLoad()
		since = r.Restart("node")
		r.AwaitRolled("node", patient, old)
		r.Watch(lossWatch)
		return r, load, since
	}
	// The registration is perfect, and kubelet reaches nobody: the old driver has
	// removed the new one's csi.sock.
	t.Run("keep-endpoint", func(t *testing.T) {
		r, load, since := run(t, "--keep-endpoint=false")
		mustStay(t, r.CSINode, since)
		mustFail(t, load.Stop(5*time.Second))
	})
	// Kubelet reaches the driver, and unregisters it for a moment.
	t.Run("handover", func(t *testing.T) {
		r, load, since := run(t, "--handover=announce")
		mustKeep(t, r, holdfast, settle)
		say(t, r, since)
		if _, times := r.CSINode.Missing(since); times == 0 {
			t.Errorf("never out of the CSINode: this test would not see an announcement")
		}
		mustServe(t, load, 5*time.Second)
	})
}

// TestCopy: the DaemonSet is copied under a second name, with the same csi.sock,
// and the copy deleted. The first pod's socket has no name at csi.sock since the copy
// bound its own.
func TestCopy(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		r.Register(kit.Plugin{Name: "node", Registrar: w.image()})
		load := r.StartLoad()
		since := r.Apply(kit.Plugin{Name: "copy", Registrar: w.image()})
		r.AwaitReady("copy", soon)
		r.Watch(3 * time.Second) // kubelet takes note of the second one
		r.Delete("copy")
		r.AwaitNoPods("copy", patient)
		judge(t, r, w, load, since)
	})
}

// TestCopyAndDelete: the DaemonSet is copied under a second name with a csi.sock
// of its own, and the copy deleted. So kubelet has to learn another endpoint twice.
func TestCopyAndDelete(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		r.Register(kit.Plugin{Name: "node", Registrar: w.image()})
		load := r.StartLoad()
		since := r.Apply(kit.Plugin{Name: "copy", Registrar: w.image(), Socket: "copy.sock"})
		r.AwaitReady("copy", soon)
		r.Watch(3 * time.Second) // kubelet takes note of the second one
		r.Delete("copy")
		r.AwaitNoPods("copy", patient)
		judgeNews(t, r, w, load, since)
	})
}

// TestRecreateSidecar: the DaemonSet is deleted in the background and made again
// at once; its driver is slow to stop, and the registrar, a native sidecar, gets
// its SIGTERM only then.
func TestRecreateSidecar(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		p := kit.Plugin{Name: "node", Registrar: w.image(), Sidecar: true, DriverArgs: slow}
		old := r.Register(p)
		load := r.StartLoad()
		since := r.Delete("node")
		r.Apply(p)
		r.AwaitRolled("node", patient, old)
		judge(t, r, w, load, since)
	})
}

// TestRecreate: the same with ordinary containers, which all get SIGTERM at once. The
// peer's registration survives that; then the old driver removes the new one's
// csi.sock.
func TestRecreate(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		p := kit.Plugin{Name: "node", Registrar: w.image(), DriverArgs: slow}
		old := r.Register(p)
		load := r.StartLoad()
		since := r.Delete("node")
		r.Apply(p)
		r.AwaitRolled("node", patient, old)
		if w == peer {
			r.Watch(lossWatch)
			say(t, r, since)
			mustFail(t, load.Stop(5*time.Second))
			return
		}
		judge(t, r, w, load, since)
	})
}

// TestForegroundDelete: the same, deleted in the foreground, and made again when
// all is gone: what operators do instead. There is no overlap, but the driver is
// away for as long as it is slow to stop.
func TestForegroundDelete(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		p := kit.Plugin{Name: "node", Registrar: w.image(), DriverArgs: slow}
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
		old := r.Register(kit.Plugin{Name: "node", Registrar: w.image()})
		load := r.StartLoad()
		since := r.Restart("node")
		r.AwaitRolled("node", patient, old)
		mustKeep(t, r, w, settle)
		say(t, r, since)
		mustServe(t, load, 10*time.Second)
	})
}
