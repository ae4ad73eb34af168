package kit

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/facts"
)

// Run is one case with one registrar: a namespace and a driver name of its own,
// and everything that is watched meanwhile. Its methods fail the test.
type Run struct {
	*Cluster
	Driver  string // the CSI driver's name
	CSINode *Membership
	Trace   *Trace

	t    testing.TB
	ns   string
	ctx  context.Context // ends after cleanup
	stop context.CancelFunc

	others []*Membership

	mu     sync.Mutex
	pods   map[string]*corev1.Pod // that exist now
	failed []Record               // FailedMount and the like
	said   map[string]string      // what was last said about a pod
	lastAt time.Time              // of the last event of a plugin's pod

	started []*User                  // all pods with a volume
	lives   map[string]*facts.Plugin // all plugins' pods

	reported bool
}

// New makes the namespace and the CSIDriver, and begins to watch.
func New(t testing.TB, c *Cluster) *Run {
	t.Helper()
	id := fmt.Sprintf("%05x", rand.IntN(1<<20))
	r := &Run{
		Cluster: c, Driver: id + ".e2e.holdfast", Trace: &Trace{began: time.Now()}, t: t, ns: "e2e-" + id,
		pods: map[string]*corev1.Pod{}, said: map[string]string{},
		lives: map[string]*facts.Plugin{},
	}
	r.CSINode = &Membership{driver: r.Driver, trace: r.Trace}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r.ctx, r.stop = ctx, stop
	t.Cleanup(r.cleanup)
	_, err := c.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: r.ns, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
	}}, metav1.CreateOptions{})
	r.must(err, "make the namespace")
	yes, no := true, false
	_, err = c.Client.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: r.Driver},
		Spec: storagev1.CSIDriverSpec{
			AttachRequired: &no, PodInfoOnMount: &yes,
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral},
		},
	}, metav1.CreateOptions{})
	r.must(err, "make the CSIDriver")
	r.Await("the namespace's service account", 20*time.Second, func() bool {
		_, err := c.Client.CoreV1().ServiceAccounts(r.ns).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	r.watch(ctx)
	r.startWatcher()
	return r
}

// watch starts the informers and waits for their first lists.
func (r *Run) watch(ctx context.Context) {
	inNamespace := informers.NewSharedInformerFactoryWithOptions(r.Client, 0, informers.WithNamespace(r.ns))
	ofNode := informers.NewSharedInformerFactoryWithOptions(r.Client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", r.Node).String()
	}))
	csi := ofNode.Storage().V1().CSINodes().Informer()
	pods := inNamespace.Core().V1().Pods().Informer()
	events := inNamespace.Core().V1().Events().Informer()
	handle := func(informer cache.SharedIndexInformer, see func(any), gone func(any)) {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: see, UpdateFunc: func(_, o any) { see(o) },
			DeleteFunc: func(o any) {
				if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = last.Obj
				}
				gone(o)
			},
		})
		r.must(err, "watch")
	}
	handle(csi, func(o any) { r.seeCSINode(o.(*storagev1.CSINode)) }, func(any) { r.seeCSINode(&storagev1.CSINode{}) })
	handle(pods, func(o any) { r.seePod(o.(*corev1.Pod)) }, func(o any) { r.podGone(o.(*corev1.Pod)) })
	handle(events, func(o any) { r.seeEvent(o.(*corev1.Event)) }, func(any) {})
	inNamespace.Start(ctx.Done())
	ofNode.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), csi.HasSynced, pods.HasSynced, events.HasSynced) {
		r.t.Fatal("the watches did not start")
	}
}

func (r *Run) seeCSINode(node *storagev1.CSINode) {
	r.mu.Lock()
	all := append([]*Membership{r.CSINode}, r.others...)
	r.mu.Unlock()
	for _, m := range all {
		m.see(node)
	}
}

// Also watches another driver. It is not in the CSINode yet.
func (r *Run) Also(driver string) *Membership {
	m := &Membership{driver: driver, trace: r.Trace}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others = append(r.others, m)
	return m
}

// plugin tells a plugin's pod from those that only use it.
func plugin(p *corev1.Pod) bool { return p.Labels["plugin"] != "" }

func (r *Run) seePod(p *corev1.Pod) {
	var parts []string
	all := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	for _, s := range all {
		switch {
		case s.State.Running != nil && s.Ready:
			parts = append(parts, s.Name+" runs")
		case s.State.Running != nil:
			parts = append(parts, s.Name+" runs, not ready")
		case s.State.Terminated != nil:
			parts = append(parts, fmt.Sprintf("%s ended: %s %d", s.Name, s.State.Terminated.Reason, s.State.Terminated.ExitCode))
		}
		if s.RestartCount > 0 {
			parts = append(parts, fmt.Sprintf("restarts %d", s.RestartCount))
		}
	}
	state := strings.Join(parts, ", ")
	if p.DeletionTimestamp != nil {
		state = "is being deleted; " + state
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods[p.Name] = p
	r.live(p, false)
	if state == r.said[p.Name] || state == "" {
		return
	}
	r.said[p.Name] = state
	at := r.Trace.Add(p.Name, "%s", state)
	if plugin(p) {
		r.lastAt = at
	}
}

func (r *Run) podGone(p *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, p.Name)
	r.live(p, true)
	at := r.Trace.Add(p.Name, "is gone")
	if plugin(p) {
		r.lastAt = at
	}
}

func (r *Run) seeEvent(e *corev1.Event) {
	if e.Type != corev1.EventTypeWarning {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.Trace.Add(e.InvolvedObject.Name, "! %s: %s", e.Reason, e.Message)
	if e.Reason == "FailedMount" || e.Reason == "FailedUnmount" || e.Reason == "FailedKillPod" {
		r.failed = append(r.failed, Record{at, e.InvolvedObject.Name, e.Reason})
	}
}

// Pods are those of the namespace now, by name.
func (r *Run) Pods() map[string]*corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.pods)
}

// FailedMounts is how many such events there were since a time.
func (r *Run) FailedMounts(since time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := 0
	for _, f := range r.failed {
		if f.At.After(since) {
			k++
		}
	}
	return k
}

// LastPodEvent is when a plugin's pod last changed.
func (r *Run) LastPodEvent() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastAt
}

// mark is who does what the test does.
const mark = "---"

// Mark writes into the trace what the test does.
func (r *Run) Mark(format string, args ...any) time.Time {
	return r.Trace.Add(mark, format, args...)
}

// Await waits for what the watches will have told.
func (r *Run) Await(what string, limit time.Duration, done func() bool) time.Duration {
	r.t.Helper()
	began := time.Now()
	if !within(limit, done) {
		r.t.Fatalf("waited %v in vain for %s", limit, what)
	}
	return time.Since(began)
}

// within is false if it was not done in time.
func within(limit time.Duration, done func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !done(); <-tick.C {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// AwaitRegistered waits until the CSINode has the driver.
func (r *Run) AwaitRegistered(limit time.Duration) time.Duration {
	r.t.Helper()
	return r.Await("the driver in the CSINode", limit, func() bool { return r.CSINode.Last().Present })
}

// AwaitGone waits until the CSINode does not have it.
func (r *Run) AwaitGone(limit time.Duration) time.Duration {
	r.t.Helper()
	return r.Await("the driver to leave the CSINode", limit, func() bool { return !r.CSINode.Last().Present })
}

// Watch goes on for a while; what it is for is in the trace.
func (r *Run) Watch(d time.Duration) {
	<-time.After(d)
}

func (r *Run) must(err error, what string) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// cleanup prints the trace if need be and removes all: first the pods with
// volumes, for which the driver must be registered, else kubelet goes on trying to
// unmount, beside the next test and on the node for ever.
func (r *Run) cleanup() {
	defer r.stop()
	r.EndReport()
	if r.t.Failed() || os.Getenv("HOLDFAST_E2E_TRACE") != "" {
		r.logs()
		r.t.Logf("the trace:\n%s", r.Trace)
	}
	ctx, cancel := context.WithTimeout(r.ctx, 2*time.Minute)
	defer cancel()
	sets := r.Client.AppsV1().DaemonSets(r.ns)
	pods := r.Client.CoreV1().Pods(r.ns)
	r.removeUsers(ctx)
	_ = sets.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	within(10*time.Second, func() bool { return len(r.Pods()) == 0 })
	now := int64(0)
	_ = pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
	_ = r.Client.StorageV1().CSIDrivers().Delete(ctx, r.Driver, metav1.DeleteOptions{})
	if err := r.Client.CoreV1().Namespaces().Delete(ctx, r.ns, metav1.DeleteOptions{}); err != nil {
		r.t.Logf("delete the namespace: %v", err)
	}
}

// removeUsers deletes the pods with volumes. If they do not go, the driver is lost,
// and another pod of it brings it back.
func (r *Run) removeUsers(ctx context.Context) {
	gone := func() bool { return len(r.users()) == 0 }
	remove := func() {
		_ = r.Client.CoreV1().Pods(r.ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "!plugin"})
	}
	remove()
	if gone() || r.CSINode.Last().Present && within(8*time.Second, gone) {
		return
	}
	_, err := r.Client.AppsV1().DaemonSets(r.ns).Create(ctx, r.daemonSet(Plugin{Name: "cleaner", Registrar: r.Images.Peer}), metav1.CreateOptions{})
	remove() // those that came late
	if err != nil || !within(45*time.Second, gone) {
		r.t.Logf("pods do not go: %v; a driver to unmount their volumes: %v", r.users(), err)
	}
}

// users are the pods that are no plugin's.
func (r *Run) users() (names []string) {
	for name, p := range r.Pods() {
		if !plugin(p) {
			names = append(names, name)
		}
	}
	return names
}

// logs puts what the plugins' containers said into the trace.
func (r *Run) logs() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for name, p := range r.Pods() {
		if !plugin(p) {
			continue
		}
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			lines := int64(40)
			data, err := r.Client.CoreV1().Pods(r.ns).GetLogs(name, &corev1.PodLogOptions{Container: c.Name, TailLines: &lines}).DoRaw(ctx)
			if err == nil {
				r.t.Logf("%s, %s:\n%s", name, c.Name, data)
			}
		}
	}
}
