package kit

import (
	"bufio"
	"bytes"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/facts"
)

// watcher is the pod that looks who accepts.
const watcher = "watcher"

// plugins is the directory of drivers' sockets on the node.
const plugins = kubelet + "/plugins"

// startWatcher does so if there is to be a report.
func (r *Run) startWatcher() {
	if r.Report == "" {
		return
	}
	r.t.Helper()
	now, privileged := int64(0), true
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: watcher}, Spec: corev1.PodSpec{
		NodeName: r.Node, HostNetwork: true, HostPID: true, TerminationGracePeriodSeconds: &now,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Volumes: []corev1.Volume{
			r.hostPath("registration", Registry, corev1.HostPathDirectoryOrCreate),
			r.hostPath("plugins", plugins, corev1.HostPathDirectoryOrCreate),
		},
		Containers: []corev1.Container{{
			Name: watcher, Image: r.Images.Driver, ImagePullPolicy: corev1.PullIfNotPresent,
			Args:            []string{"--watch=" + strings.Join([]string{r.pathInWatcher(), r.socketInWatcher(), r.endpointInWatcher()}, ",")},
			SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "registration", MountPath: "/registration"}, {Name: "plugins", MountPath: "/plugins"},
			},
		}},
	}}
	_, err := r.Client.CoreV1().Pods(r.ns).Create(r.ctx, pod, metav1.CreateOptions{})
	r.must(err, "make the watcher")
	r.Await("the watcher", 30*time.Second, func() bool { return running(r.Pods()[watcher]) })
}

func (r *Run) pathInWatcher() string     { return "/registration/" + r.Driver + "-reg.sock" }
func (r *Run) socketInWatcher() string   { return "/plugins/" + r.Driver + "/csi.sock" }
func (r *Run) endpointInWatcher() string { return "/plugins/" + r.Driver + "/.csi.sock.ep" }

// EndReport writes down what was recorded until now; what follows, up to the end of
// the test, is not in the report.
func (r *Run) EndReport() {
	if r.Report == "" || r.reported {
		return
	}
	r.reported = true
	name, with := r.t.Name(), "holdfast"
	for _, w := range []string{"peer", "holdfast"} {
		if rest, ok := strings.CutSuffix(name, "/"+w); ok {
			name, with = rest, w
		}
	}
	c := facts.Case{Name: name, With: with, Failed: r.t.Failed(), Ended: r.seconds(time.Now())}
	for _, rec := range r.Trace.Records() {
		if rec.Who == mark {
			c.Marks = append(c.Marks, facts.Mark{At: r.seconds(rec.At), Text: rec.Text})
		}
	}
	for _, m := range r.CSINode.Changes() {
		c.CSINode = append(c.CSINode, facts.Change{At: r.seconds(m.At), Present: m.Present})
	}
	r.mu.Lock()
	for _, f := range r.failed {
		c.Failure = append(c.Failure, facts.Mark{At: r.seconds(f.At), Pod: f.Who, Text: f.Text})
	}
	for _, u := range r.started {
		c.Users = append(c.Users, facts.User{Name: u.Name, Made: r.seconds(u.Made), Mounted: r.seconds(u.Mounted),
			Deleted: r.seconds(u.Deleted), Gone: r.seconds(u.Gone)})
	}
	for _, p := range r.lives {
		c.Plugins = append(c.Plugins, *p)
	}
	r.mu.Unlock()
	slices.SortFunc(c.Plugins, func(a, b facts.Plugin) int { return int(math.Copysign(1, a.Seen-b.Seen)) })
	r.readWatcher(&c)
	if err := c.Write(r.Report); err != nil {
		r.t.Errorf("write the facts for the report: %v", err)
	}
}

// readWatcher adds what the watcher saw, and ends it.
func (r *Run) readWatcher(c *facts.Case) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	pods := r.Client.CoreV1().Pods(r.ns)
	out, err := pods.GetLogs(watcher, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		r.t.Errorf("read what the watcher saw: %v", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		f := append(strings.Fields(lines.Text()), "")
		if len(f) < 4 {
			continue
		}
		ns, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil {
			continue
		}
		a := facts.Accept{At: r.seconds(time.Unix(0, ns)), State: f[2], Pod: f[3]}
		switch f[1] {
		case r.pathInWatcher():
			c.Path = append(c.Path, a)
		case r.socketInWatcher():
			c.Socket = append(c.Socket, a)
		case r.endpointInWatcher():
			c.Endpoint = append(c.Endpoint, a)
		}
	}
	_ = pods.Delete(ctx, watcher, metav1.DeleteOptions{})
}

// seconds since the case began; zero for what did not happen.
func (r *Run) seconds(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return math.Round(at.Sub(r.Trace.began).Seconds()*1000) / 1000
}

// live notes what a plugin's pod does. The lock is held.
func (r *Run) live(p *corev1.Pod, gone bool) {
	if !plugin(p) {
		return
	}
	now := r.seconds(time.Now())
	l := r.lives[p.Name]
	if l == nil {
		l = &facts.Plugin{Name: p.Name, Seen: now}
		r.lives[p.Name] = l
	}
	if l.Ready == 0 && podReady(p) {
		l.Ready = now
	}
	if l.Deleting == 0 && p.DeletionTimestamp != nil {
		l.Deleting = now
	}
	if gone {
		l.Gone = now
	}
}
