package kit

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Plugin is a DaemonSet of a driver and a registrar.
type Plugin struct {
	Name       string   // of the DaemonSet
	Registrar  string   // image
	DriverArgs []string // beyond endpoint, name and node ID
	// RegistrarArgs are beyond those which every registrar has.
	RegistrarArgs []string
	// Socket is the driver's, below its directory in kubelet's plugins; csi.sock
	// if empty.
	Socket string
	// Surge starts a new pod before the old one goes; else the old one goes first.
	Surge bool
	// MinReady is how long a new pod must be ready in a surge, in seconds.
	MinReady int32
	// Sidecar makes the registrar a native sidecar, which ends after the driver.
	Sidecar bool
	// Grace is the pod's termination grace period, 30 s if zero.
	Grace time.Duration
	// NodeID of the driver; $(POD_NAME) is the pod's name. The node's if empty.
	NodeID string
	// Drivers are further names: each gets a driver and a registrar in the same pod.
	Drivers []string
	// Modify changes the pod at the end.
	Modify func(*corev1.PodSpec)
}

// kubelet is its directory on the node, Registry where registration sockets are.
const (
	kubelet  = "/var/lib/kubelet"
	Registry = kubelet + "/plugins_registry"
)

// RegistrarContainer is the name of the registrar's container.
const RegistrarContainer = "node-driver-registrar"

// daemonSet is written as a driver's Helm chart would.
func (r *Run) daemonSet(p Plugin) *appsv1.DaemonSet {
	labels := map[string]string{"plugin": p.Name}
	grace := int64(30)
	if p.Grace > 0 {
		grace = int64(p.Grace.Seconds())
	}
	spec := corev1.PodSpec{
		HostNetwork:                   true,
		TerminationGracePeriodSeconds: &grace,
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Volumes: []corev1.Volume{
			r.hostPath("csi", kubelet+"/plugins/"+r.Driver, corev1.HostPathDirectoryOrCreate),
			r.hostPath("registration", Registry, corev1.HostPathDirectoryOrCreate),
			r.hostPath("pods", kubelet+"/pods", corev1.HostPathDirectory),
		},
	}
	registrar := r.registrar(p, r.Driver)
	spec.Containers = []corev1.Container{r.driver(p, r.Driver)}
	if p.Sidecar {
		always := corev1.ContainerRestartPolicyAlways
		registrar.RestartPolicy = &always
		spec.InitContainers = []corev1.Container{registrar}
	} else {
		spec.Containers = append(spec.Containers, registrar)
	}
	for i, name := range p.Drivers {
		spec.Volumes = append(spec.Volumes, r.hostPath(fmt.Sprintf("csi-%d", i), kubelet+"/plugins/"+name, corev1.HostPathDirectoryOrCreate))
		for _, c := range []corev1.Container{r.driver(p, name), r.registrar(p, name)} {
			c.Name = fmt.Sprintf("%s-%d", c.Name, i)
			c.VolumeMounts[0].Name = fmt.Sprintf("csi-%d", i)
			spec.Containers = append(spec.Containers, c)
		}
	}
	if p.Modify != nil {
		p.Modify(&spec)
	}
	zero, one := intstr.FromInt32(0), intstr.FromInt32(1)
	rolling := &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &one, MaxSurge: &zero}
	if p.Surge {
		rolling = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &zero, MaxSurge: &one}
	}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: r.ns},
		Spec: appsv1.DaemonSetSpec{
			Selector:        &metav1.LabelSelector{MatchLabels: labels},
			MinReadySeconds: p.MinReady,
			UpdateStrategy:  appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: rolling},
			Template:        corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}

func (p Plugin) socket() string {
	if p.Socket == "" {
		return "csi.sock"
	}
	return p.Socket
}

func (r *Run) driver(p Plugin, name string) corev1.Container {
	nodeID := p.NodeID
	if nodeID == "" {
		nodeID = "$(NODE_NAME)"
	}
	privileged := true
	both := corev1.MountPropagationBidirectional
	return corev1.Container{
		Name: "driver", Image: r.Images.Driver, ImagePullPolicy: corev1.PullIfNotPresent,
		Args: append([]string{"--endpoint=/csi/" + p.socket(), "--name=" + name, "--node-id=" + nodeID}, p.DriverArgs...),
		// The registrar, started next, finds the driver serving: who is first does not
		// depend on how long it waits between two looks.
		Lifecycle: &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{"/driver", "--await=/csi/" + p.socket()}},
		}},
		Env: []corev1.EnvVar{field("NODE_NAME", "spec.nodeName"), field("POD_NAME", "metadata.name")},
		// As drivers need it to mount for kubelet.
		SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "csi", MountPath: "/csi"},
			{Name: "pods", MountPath: kubelet + "/pods", MountPropagation: &both},
		},
	}
}

func (r *Run) registrar(p Plugin, name string) corev1.Container {
	return corev1.Container{
		Name: RegistrarContainer, Image: p.Registrar, ImagePullPolicy: corev1.PullIfNotPresent,
		Args: append([]string{
			"--csi-address=/csi/" + p.socket(),
			"--kubelet-registration-path=" + kubelet + "/plugins/" + name + "/" + p.socket(),
		}, p.RegistrarArgs...),
		// For the report, which says whose socket it is; no registrar reads it.
		Env: []corev1.EnvVar{field("POD_NAME", "metadata.name")},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "csi", MountPath: "/csi"},
			{Name: "registration", MountPath: "/registration"},
		},
	}
}

func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func (r *Run) hostPath(name, path string, kind corev1.HostPathType) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}}
}

// Apply creates the DaemonSet.
func (r *Run) Apply(p Plugin) time.Time {
	r.t.Helper()
	at := r.Mark("apply the DaemonSet %s (%s)", p.Name, p.Registrar)
	_, err := r.Client.AppsV1().DaemonSets(r.ns).Create(r.ctx, r.daemonSet(p), metav1.CreateOptions{})
	r.must(err, "make the DaemonSet")
	return at
}

// Restart is what kubectl rollout restart does.
func (r *Run) Restart(name string) time.Time {
	r.t.Helper()
	at := r.Mark("rollout restart of %s", name)
	r.patch(name, fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`,
		time.Now().Format(time.RFC3339Nano)))
	return at
}

// SetImage is what kubectl set image does, for the registrar. It has no arguments
// that only one of the registrars knows.
func (r *Run) SetImage(name, image string) time.Time {
	r.t.Helper()
	at := r.Mark("set image of %s to %s", name, image)
	r.patch(name, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, RegistrarContainer, image))
	return at
}

func (r *Run) patch(name, patch string) {
	r.t.Helper()
	_, err := r.Client.AppsV1().DaemonSets(r.ns).Patch(r.ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	r.must(err, "patch the DaemonSet")
}

// Delete deletes the DaemonSet in the background, as kubectl does.
func (r *Run) Delete(name string) time.Time {
	r.t.Helper()
	at := r.Mark("delete the DaemonSet %s", name)
	background := metav1.DeletePropagationBackground
	err := r.Client.AppsV1().DaemonSets(r.ns).Delete(r.ctx, name, metav1.DeleteOptions{PropagationPolicy: &background})
	r.must(err, "delete the DaemonSet")
	return at
}

// DeleteForeground deletes the DaemonSet in the foreground, and waits until it is
// gone with its pods, as kubectl does.
func (r *Run) DeleteForeground(name string, limit time.Duration) time.Time {
	r.t.Helper()
	at := r.Mark("delete the DaemonSet %s in the foreground", name)
	foreground := metav1.DeletePropagationForeground
	sets := r.Client.AppsV1().DaemonSets(r.ns)
	r.must(sets.Delete(r.ctx, name, metav1.DeleteOptions{PropagationPolicy: &foreground}), "delete the DaemonSet")
	r.Await("the DaemonSet to go", limit, func() bool {
		_, err := sets.Get(r.ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	return at
}

// Ready are the names of a plugin's pods that are ready and stay.
func (r *Run) Ready(name string) []string {
	var names []string
	for podName, p := range r.Pods() {
		if p.Labels["plugin"] == name && p.DeletionTimestamp == nil && podReady(p) {
			names = append(names, podName)
		}
	}
	return names
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// AwaitReady waits for a pod of a plugin that is ready.
func (r *Run) AwaitReady(name string, limit time.Duration) string {
	r.t.Helper()
	r.Await("a ready pod of "+name, limit, func() bool { return len(r.Ready(name)) > 0 })
	return r.Ready(name)[0]
}

// AwaitRolled waits until old pods are gone and one other is ready. It touches
// the DaemonSet every two seconds: with minReadySeconds and a surge the controller
// of v1.36.3 may not look again by itself when they are over.
func (r *Run) AwaitRolled(name string, limit time.Duration, old ...string) {
	r.t.Helper()
	touched := time.Now()
	r.Await("the new pod of "+name+" alone", limit, func() bool {
		if time.Since(touched) > 2*time.Second {
			touched = time.Now()
			r.patch(name, fmt.Sprintf(`{"metadata":{"annotations":{"e2e.holdfast/touched":%q}}}`, touched.Format(time.RFC3339Nano)))
		}
		pods := r.Pods()
		for _, o := range old {
			if pods[o] != nil {
				return false
			}
		}
		return len(r.Ready(name)) > 0
	})
}

// AwaitNoPods waits until a plugin has no pod.
func (r *Run) AwaitNoPods(name string, limit time.Duration) {
	r.t.Helper()
	r.Await("the pods of "+name+" to go", limit, func() bool {
		for podName := range r.Pods() {
			if strings.HasPrefix(podName, name+"-") {
				return false
			}
		}
		return true
	})
}

// Register applies a plugin and waits until it is ready and registered.
func (r *Run) Register(p Plugin) string {
	r.t.Helper()
	r.Apply(p)
	pod := r.AwaitReady(p.Name, 30*time.Second)
	r.AwaitRegistered(30 * time.Second)
	return pod
}
