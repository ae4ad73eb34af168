package e2e_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/kit"
)

// TestMigrate: incumbent, Holdfast, incumbent, by kubectl set image. After each
// step the driver is there.
func TestMigrate(t *testing.T) {
	for name, surge := range map[string]bool{"surge": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			r := kit.New(t, cluster)
			old := r.Register(kit.Plugin{Name: "node", Registrar: peer.image(), Surge: surge, DriverArgs: tidy})
			load := r.StartLoad()
			for _, w := range []who{holdfast, peer} {
				since := r.SetImage("node", w.image())
				r.AwaitRolled("node", patient, old)
				old = r.AwaitReady("node", soon)
				mustKeep(t, r, w, settle)
				t.Logf("to %s:", w)
				say(t, r, since)
			}
			mustServe(t, load, 10*time.Second)
		})
	}
}

// TestThreeDrivers: one pod with three drivers and three registrars, which share
// one /registration.
func TestThreeDrivers(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		more := []string{"b-" + r.Driver, "c-" + r.Driver}
		members := []*kit.Membership{r.CSINode, r.Also(more[0]), r.Also(more[1])}
		all := func(present bool) func() bool {
			return func() bool {
				return !slices.ContainsFunc(members, func(m *kit.Membership) bool { return m.Last().Present != present })
			}
		}
		old := r.Register(kit.Plugin{Name: "node", Registrar: w.image(), Surge: true, MinReady: 2, DriverArgs: tidy, Drivers: more})
		r.Await("all three in the CSINode", soon, all(true))
		since := r.Restart("node")
		r.AwaitRolled("node", patient, old)
		r.Watch(2 * settle)
		for _, m := range members {
			missing, times := m.Missing(since)
			t.Logf("%d times out of the CSINode, %.1f s in all", times, missing.Seconds())
			if present := m.Last().Present; present != (w == holdfast) {
				t.Errorf("in the CSINode: %v", present)
			}
		}
		if w == holdfast {
			deleted := r.Delete("node")
			r.Await("all three to leave the CSINode", soon, all(false))
			if took := time.Since(deleted); took > 3*time.Second {
				t.Errorf("left the CSINode after %v, want at most 3 s", took)
			}
		}
	})
}

// TestRestricted: no capability at all, a read-only root and 32 Mi do.
func TestRestricted(t *testing.T) {
	r := kit.New(t, cluster)
	yes, no := true, false
	p := kit.Plugin{Name: "node", Registrar: holdfast.image(), Surge: true, DriverArgs: tidy}
	p.Modify = func(s *corev1.PodSpec) {
		c := registrarOf(s)
		c.SecurityContext = &corev1.SecurityContext{
			ReadOnlyRootFilesystem: &yes, AllowPrivilegeEscalation: &no,
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		limit(c, "32Mi")
	}
	old := r.Register(p)
	load := r.StartLoad()
	since := r.Restart("node")
	r.AwaitRolled("node", patient, old)
	judge(t, r, holdfast, load, since)
	if k := restarts(r); k > 0 {
		t.Errorf("%d restarts", k)
	}
}

func limit(c *corev1.Container, memory string) {
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
}

// TestNothingLeft: after the DaemonSet is gone, the node has nothing of ours.
func TestNothingLeft(t *testing.T) {
	r := kit.New(t, cluster)
	r.Register(kit.Plugin{Name: "node", Registrar: holdfast.image()})
	deleted := r.Delete("node")
	r.AwaitGone(soon)
	if took := r.CSINode.Last().At.Sub(deleted); took > 3*time.Second {
		t.Errorf("the driver left the CSINode after %v, want at most 3 s", took)
	}
	r.AwaitNoPods("node", patient)
	for _, name := range r.List(kit.Registry) {
		if strings.Contains(name, r.Driver) {
			t.Errorf("left in plugins_registry: %s", name)
		}
	}
	if left := r.List("/var/lib/kubelet/plugins/" + r.Driver); len(left) > 0 {
		t.Errorf("left in the driver's directory: %v", left)
	}
}
