package kit

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// helper runs the driver's image in one of its other roles, to its end, and gives
// what it printed.
func (r *Run) helper(arg string, change func(*corev1.PodSpec)) string {
	r.t.Helper()
	name := fmt.Sprintf("helper-%04x", rand.IntN(1<<16))
	spec := corev1.PodSpec{
		NodeName: r.Node, HostNetwork: true, RestartPolicy: corev1.RestartPolicyNever,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers: []corev1.Container{{
			Name: "helper", Image: r.Images.Driver, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{arg},
		}},
	}
	change(&spec)
	pods := r.Client.CoreV1().Pods(r.ns)
	_, err := pods.Create(r.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	r.must(err, "make a helper pod")
	phase := func() corev1.PodPhase {
		if p := r.Pods()[name]; p != nil {
			return p.Status.Phase
		}
		return ""
	}
	r.Await("the helper "+arg, 30*time.Second, func() bool { return phase() == corev1.PodSucceeded || phase() == corev1.PodFailed })
	out, err := pods.GetLogs(name, &corev1.PodLogOptions{}).DoRaw(r.ctx)
	r.must(err, "read what the helper said")
	r.Trace.Add(name, "%s: %s", arg, strings.TrimSpace(string(out)))
	if phase() != corev1.PodSucceeded {
		r.t.Fatalf("helper %s: %s", arg, out)
	}
	now := int64(0)
	_ = pods.Delete(r.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	return string(out)
}

// List gives the names in the registration directory that have the driver's name,
// and those in the directory of its socket.
func (r *Run) List() (registry, directory []string) {
	r.t.Helper()
	out := r.helper("--list=/registry,/directory", func(s *corev1.PodSpec) {
		s.Volumes = []corev1.Volume{
			r.hostPath("registry", Registry, corev1.HostPathDirectory),
			r.hostPath("directory", plugins+"/"+r.Driver, corev1.HostPathDirectory),
		}
		for _, v := range s.Volumes {
			s.Containers[0].VolumeMounts = append(s.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name, ReadOnly: true})
		}
	})
	for _, path := range strings.Fields(out) {
		if name, ok := strings.CutPrefix(path, "/directory/"); ok {
			directory = append(directory, name)
		} else if strings.Contains(path, r.Driver) {
			registry = append(registry, strings.TrimPrefix(path, "/registry/"))
		}
	}
	return registry, directory
}

// Kill kills the registrars of this run.
func (r *Run) Kill() time.Time { r.t.Helper(); return r.signal("SIGKILL", "--kill=") }

// Term ends them with SIGTERM.
func (r *Run) Term() time.Time { r.t.Helper(); return r.signal("SIGTERM", "--term=") }

func (r *Run) signal(name, flag string) time.Time {
	r.t.Helper()
	at := r.Mark("%s to the registrar", name)
	privileged := true
	r.helper(flag+r.registrarArg(), func(s *corev1.PodSpec) {
		s.HostPID = true
		s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &privileged}
	})
	return at
}

// Hammer asks the registrar until it dies.
func (r *Run) Hammer() time.Time {
	r.t.Helper()
	at := r.Mark("hammer the registrar until it is out of memory")
	r.helper("--hammer=/registration/"+r.Driver+"-reg.sock", func(s *corev1.PodSpec) {
		s.Volumes = []corev1.Volume{r.hostPath("registration", Registry, corev1.HostPathDirectory)}
		s.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "registration", MountPath: "/registration"}}
	})
	return at
}

// registrarArg is in the command line of this run's registrars and of no other process.
func (r *Run) registrarArg() string {
	return "--kubelet-registration-path=" + kubelet + "/plugins/" + r.Driver + "/"
}

// Ended counts a container's ends in the pods that exist, by reason.
func (r *Run) Ended(container, reason string) int {
	count := 0
	for _, p := range r.Pods() {
		for _, s := range p.Status.ContainerStatuses {
			for _, state := range []corev1.ContainerState{s.State, s.LastTerminationState} {
				if s.Name == container && state.Terminated != nil && state.Terminated.Reason == reason {
					count++
				}
			}
		}
	}
	return count
}

// ForceDelete is kubectl delete pod --force --grace-period=0.
func (r *Run) ForceDelete(name string) time.Time {
	r.t.Helper()
	at := r.Mark("delete %s by force", name)
	now := int64(0)
	r.must(r.Client.CoreV1().Pods(r.ns).Delete(r.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now}), "delete a pod")
	return at
}
