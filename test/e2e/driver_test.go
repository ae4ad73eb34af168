package e2e_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/kit"
)

// TestSlowBind: a surge with a driver that removes csi.sock when it starts, and
// binds it three seconds later. The new registrar finds no driver to ask, and the
// old one's driver serves on without a csi.sock. minReadySeconds lets the peer find
// the driver (its gRPC looks after 1, 2.6 and 5.2 s) before the old pod goes.
func TestSlowBind(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		old := r.Register(slowToBind(kit.Plugin{Name: "node", Registrar: w.image(), Surge: true, MinReady: 10, Modify: unhook}))
		load := r.StartLoad()
		since := r.Restart("node")
		r.AwaitRolled("node", patient, old)
		judge(t, r, w, load, since)
	})
}

// TestSlowBindProbed: the same, and a readiness probe looks whether csi.sock
// accepts. So the old pod is not ready either when the new one has removed it, and
// the DaemonSet controller deletes it at once: nobody overlaps, nobody has a driver
// before the new one binds, and neither loses it for good.
func TestSlowBindProbed(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		old := r.Register(slowToBind(kit.Plugin{Name: "node", Registrar: w.image(), Surge: true, Modify: probe}))
		load := r.StartLoad()
		since := r.Restart("node")
		r.AwaitRolled("node", patient, old)
		mustKeep(t, r, w, settle)
		say(t, r, since)
		mustServe(t, load, 20*time.Second)
	})
}

func slowToBind(p kit.Plugin) kit.Plugin {
	p.DriverArgs = []string{"--bind-delay=3s"}
	return p
}

// unhook lets the registrar start before the driver has bound.
func unhook(s *corev1.PodSpec) { s.Containers[0].Lifecycle = nil }

// probe makes of the hook a readiness probe.
func probe(s *corev1.PodSpec) {
	s.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: s.Containers[0].Lifecycle.PostStart.Exec},
		PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 1,
	}
	unhook(s)
}

// TestNodeID: the driver's node ID is its pod's name. After all, the CSINode has
// that of the pod which lives.
func TestNodeID(t *testing.T) {
	p := kit.Plugin{Name: "node", NodeID: "$(POD_NAME)"}

	t.Run("surge", func(t *testing.T) {
		p := p
		p.Surge, p.MinReady = true, 5
		both(t, func(t *testing.T, r *kit.Run, w who) {
			p.Registrar = w.image()
			old := r.Register(p)
			mustName(t, r, old)
			load := r.StartLoad()
			since := r.Restart("node")
			r.AwaitRolled("node", patient, old)
			judgeNews(t, r, w, load, since)
			if w == holdfast {
				mustName(t, r, r.AwaitReady("node", soon))
			}
		})
	})

	// Here the older pod is the one that lives; each has a csi.sock of its own.
	t.Run("copy", func(t *testing.T) {
		both(t, func(t *testing.T, r *kit.Run, w who) {
			p.Registrar = w.image()
			first := r.Register(p)
			load := r.StartLoad()
			more := p
			more.Name, more.Socket = "copy", "copy.sock"
			since := r.Apply(more)
			r.AwaitReady("copy", soon)
			r.Watch(3 * time.Second) // kubelet takes note of the second one
			r.Delete("copy")
			r.AwaitNoPods("copy", patient)
			judgeNews(t, r, w, load, since)
			if w == holdfast {
				mustName(t, r, first)
			}
		})
	})
}

// mustName wants the node ID of this pod in the CSINode.
func mustName(t *testing.T, r *kit.Run, pod string) {
	t.Helper()
	if now := r.CSINode.Last(); !now.Present || now.NodeID != pod {
		t.Errorf("the CSINode has the driver: %v, with node ID %q; want that of pod %s", now.Present, now.NodeID, pod)
	}
}
