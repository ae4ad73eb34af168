package e2e_test

import (
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/kit"
)

// TestInstallUninstall: the driver comes within seconds, serves a pod, and is
// gone within three seconds of the DaemonSet's deletion.
func TestInstallUninstall(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		applied := r.Apply(kit.Plugin{Name: "node", Registrar: w.image()})
		r.AwaitRegistered(soon)
		t.Logf("registered %.1f s after apply", r.CSINode.Last().At.Sub(applied).Seconds())
		user := r.Start("user")
		t.Logf("mounted after %.1f s", r.AwaitMounted(user, soon).Seconds())
		r.DeletePod(user)
		t.Logf("deleted after %.1f s", r.AwaitPodGone(user, soon).Seconds())

		deleted := r.Delete("node")
		r.AwaitGone(soon)
		if took := r.CSINode.Last().At.Sub(deleted); took > 3*time.Second {
			t.Errorf("the driver left the CSINode %v after the delete, want at most 3 s", took)
		} else {
			t.Logf("left the CSINode %.1f s after the delete", took.Seconds())
		}
	})
}
