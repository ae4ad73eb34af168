package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/kit"
)

// TestKubeletRestart: the registration survives it, with either.
func TestKubeletRestart(t *testing.T) {
	if cluster.RestartKubelet == "" {
		skip(t, "HOLDFAST_E2E_RESTART_KUBELET does not say how to restart kubelet")
	}
	both(t, func(t *testing.T, r *kit.Run, w who) {
		r.Register(kit.Plugin{Name: "node", Registrar: w.image()})
		user := r.Start("user")
		r.AwaitMounted(user, soon)
		since := r.Mark("restart kubelet")
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", cluster.RestartKubelet).CombinedOutput(); err != nil {
			t.Fatalf("restart kubelet: %v\n%s", err, out)
		}
		after := r.Start("after")
		t.Logf("a pod mounts %.1f s after the restart", r.AwaitMounted(after, patient).Seconds())
		r.DeletePod(user)
		r.AwaitPodGone(user, soon)
		mustKeep(t, r, w, restarted)
		say(t, r, since)
	})
}

// TestForceDelete: kubectl delete pod --force --grace-period=0. The DaemonSet's
// next pod starts while the containers of the deleted one still stop. What comes
// of it with the peer depends on who is first, and is only logged.
func TestForceDelete(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		old := r.Register(kit.Plugin{Name: "node", Registrar: w.image(), DriverArgs: []string{"--stop-delay=3s"}})
		load := r.StartLoad()
		since := r.ForceDelete(old)
		r.AwaitRolled("node", patient, old)
		r.Watch(5 * time.Second) // the old containers end unseen
		if w == peer {
			t.Logf("the peer's driver is in the CSINode: %v", r.CSINode.Last().Present)
			say(t, r, since)
			t.Logf("%s", load.Stop(5*time.Second))
			return
		}
		mustKeep(t, r, w, restarted)
		say(t, r, since)
		mustServe(t, load, 10*time.Second)
	})
}

// TestKilled: the registrar is killed (SIGKILL) and starts again.
func TestKilled(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		r.Register(kit.Plugin{Name: "node", Registrar: w.image()})
		load := r.StartLoad()
		since := r.Kill()
		awaitRestart(r)
		mustKeep(t, r, w, restarted)
		say(t, r, since)
		mustServe(t, load, 10*time.Second)
	})
}

// TestOutOfMemory: the kernel kills the registrar at its limit, and it starts again.
func TestOutOfMemory(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		p := kit.Plugin{Name: "node", Registrar: w.image()}
		p.Modify = func(s *corev1.PodSpec) {
			c := registrarOf(s)
			c.Env = append(c.Env, corev1.EnvVar{Name: "GOGC", Value: "off"})
			limit(c, "32Mi")
		}
		r.Register(p)
		load := r.StartLoad()
		since := r.Hammer()
		awaitRestart(r)
		if r.Ended(kit.RegistrarContainer, "OOMKilled") == 0 {
			t.Errorf("the registrar ended, but not for want of memory")
		}
		mustKeep(t, r, w, restarted)
		say(t, r, since)
		mustServe(t, load, 10*time.Second)
	})
}

// TestRestartAfterSurge: in a surge the old driver has removed the new one's
// csi.sock. Then the new pod's registrar restarts alone. Its driver has no name but
// those which Holdfast gave it, and must stay reachable through them.
func TestRestartAfterSurge(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*kit.Run) time.Time
	}{{"killed", (*kit.Run).Kill}, {"terminated", (*kit.Run).Term}} {
		t.Run(c.name, func(t *testing.T) {
			r := kit.New(t, cluster)
			old := r.Register(kit.Plugin{Name: "node", Registrar: holdfast.image(), Surge: true})
			load := r.StartLoad()
			r.Restart("node")
			r.AwaitRolled("node", patient, old)
			if _, names := r.List(); slices.Contains(names, "csi.sock") {
				t.Errorf("csi.sock is there: this test sees nothing")
			}
			since := c.end(r)
			awaitRestart(r)
			mustKeep(t, r, holdfast, restarted)
			r.Watch(lossWatch - settle)
			mustHave(t, r)
			say(t, r, since)
			mustServe(t, load, 10*time.Second)
		})
	}
}

func awaitRestart(r *kit.Run) {
	r.Await("the restart of the registrar", soon, func() bool { return restarts(r) > 0 && len(r.Ready("node")) > 0 })
}

func restarts(r *kit.Run) (k int32) {
	for _, p := range r.Pods() {
		for _, s := range p.Status.ContainerStatuses {
			k += s.RestartCount
		}
	}
	return k
}

func registrarOf(s *corev1.PodSpec) *corev1.Container {
	for i := range s.Containers {
		if s.Containers[i].Name == kit.RegistrarContainer {
			return &s.Containers[i]
		}
	}
	panic("no registrar in the pod")
}

// skip says it aloud, and once more at the end.
func skip(t *testing.T, why string) {
	t.Helper()
	fmt.Fprintf(os.Stderr, "NOT TESTED: %s: %s\n", t.Name(), why)
	t.Skip(why)
}
