package kit

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// User is a pod with an inline volume of the driver.
type User struct {
	Name          string
	Made, Mounted time.Time
	Deleted, Gone time.Time
}

// Start makes a pod with an inline volume. It runs only if the volume is mounted.
func (r *Run) Start(name string) *User {
	r.t.Helper()
	grace, driver := int64(1), r.Driver
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.ns},
		Spec: corev1.PodSpec{
			NodeName: r.Node, HostNetwork: true, RestartPolicy: corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace,
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "user", Image: r.Images.Driver, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"--hold=/data"},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driver}}}},
		},
	}
	u := &User{Name: name, Made: time.Now()}
	r.mu.Lock()
	r.started = append(r.started, u)
	r.mu.Unlock()
	_, err := r.Client.CoreV1().Pods(r.ns).Create(r.ctx, pod, metav1.CreateOptions{})
	if err != nil {
		r.Trace.Add(name, "not made: %v", err)
	}
	return u
}

// DeletePod deletes the pod as kubectl does, without waiting.
func (r *Run) DeletePod(u *User) {
	u.Deleted = time.Now()
	r.Trace.Add(u.Name, "delete")
	_ = r.Client.CoreV1().Pods(r.ns).Delete(r.ctx, u.Name, metav1.DeleteOptions{})
}

// AwaitMounted waits until the pod runs, with its volume.
func (r *Run) AwaitMounted(u *User, limit time.Duration) time.Duration {
	r.t.Helper()
	r.Await(u.Name+" to run with its volume", limit, func() bool { return running(r.Pods()[u.Name]) })
	u.Mounted = time.Now()
	return u.Mounted.Sub(u.Made)
}

// AwaitPodGone waits until the pod does not exist.
func (r *Run) AwaitPodGone(u *User, limit time.Duration) time.Duration {
	r.t.Helper()
	r.Await(u.Name+" to go", limit, func() bool { return r.Pods()[u.Name] == nil })
	u.Gone = time.Now()
	return u.Gone.Sub(u.Deleted)
}

func running(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodRunning }

// Load starts a pod every second, each with a volume, and deletes one that was
// mounted before.
type Load struct {
	run   *Run
	stop  context.CancelFunc
	done  chan struct{}
	users []*User
	kept  *User // mounted before, and not deleted before the load stops
}

// StartLoad mounts a few volumes and begins.
func (r *Run) StartLoad() *Load {
	r.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := &Load{run: r, stop: stop, done: make(chan struct{})}
	for i := range 3 {
		l.users = append(l.users, r.Start(fmt.Sprintf("before-%d", i)))
	}
	l.kept = r.Start("kept")
	l.users = append(l.users, l.kept)
	for _, u := range l.users {
		r.AwaitMounted(u, 30*time.Second)
	}
	r.t.Cleanup(func() { stop(); <-l.done })
	go l.work(ctx)
	return l
}

func (l *Load) work(ctx context.Context) {
	defer close(l.done)
	second := time.NewTicker(time.Second)
	defer second.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for i := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			l.look()
		case <-second.C:
			l.users = append(l.users, l.run.Start(fmt.Sprintf("during-%d", i)))
			i++
			for _, u := range l.users {
				if u != l.kept && !u.Mounted.IsZero() && u.Deleted.IsZero() {
					l.run.DeletePod(u)
					break
				}
			}
		}
	}
}

// look notes who runs and who is gone.
func (l *Load) look() {
	pods := l.run.Pods()
	for _, u := range l.users {
		p := pods[u.Name]
		switch {
		case u.Mounted.IsZero() && running(p):
			u.Mounted = time.Now()
		case !u.Deleted.IsZero() && u.Gone.IsZero() && p == nil:
			u.Gone = time.Now()
		}
	}
}

// DeleteKept deletes, after the load has stopped, the pod that was mounted before
// it all. It is an error if it does not go in time.
func (l *Load) DeleteKept(limit time.Duration) (time.Duration, error) {
	u := l.kept
	l.run.DeletePod(u)
	if !within(limit, func() bool { return l.run.Pods()[u.Name] == nil }) {
		return 0, fmt.Errorf("a pod that was mounted before is still there %v after its deletion", limit)
	}
	u.Gone = time.Now()
	return u.Gone.Sub(u.Deleted), nil
}

// prompt is how long a pod may take to mount before it counts as delayed; on a
// machine so busy that pods take long anyway, thrice the median of all.
const prompt = 3 * time.Second

// Result is what a load saw.
type Result struct {
	Started, Mounted          int
	Deleted, Gone             int
	WorstMount, WorstGone     time.Duration
	StuckMounting, StuckGoing []string
	Delayed                   int // took longer than Prompt to mount
	Prompt                    time.Duration
	FailedMounts              int
}

func (s Result) String() string {
	return fmt.Sprintf("%d of %d pods mounted (worst %.1f s, %d over %.1f s, stuck %v), %d of %d went (worst %.1f s, stuck %v), %d FailedMount events",
		s.Mounted, s.Started, s.WorstMount.Seconds(), s.Delayed, s.Prompt.Seconds(), s.StuckMounting, s.Gone, s.Deleted, s.WorstGone.Seconds(), s.StuckGoing, s.FailedMounts)
}

// Stop starts no more pods, gives those that are on their way a while, and says
// what came of all.
func (l *Load) Stop(limit time.Duration) Result {
	l.stop()
	<-l.done
	l.run.Mark("the load stops")
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		l.look()
		if !slices.ContainsFunc(l.users, func(u *User) bool {
			return u.Mounted.IsZero() || !u.Deleted.IsZero() && u.Gone.IsZero()
		}) {
			break
		}
	}
	var s Result
	var took []time.Duration
	for _, u := range l.users {
		s.Started++
		if u.Mounted.IsZero() {
			s.StuckMounting = append(s.StuckMounting, u.Name)
		} else {
			s.Mounted++
			took = append(took, u.Mounted.Sub(u.Made))
		}
		if u.Deleted.IsZero() {
			continue
		}
		s.Deleted++
		if u.Gone.IsZero() {
			s.StuckGoing = append(s.StuckGoing, u.Name)
		} else {
			s.Gone++
			s.WorstGone = max(s.WorstGone, u.Gone.Sub(u.Deleted))
		}
	}
	slices.Sort(took)
	s.WorstMount = took[len(took)-1]
	s.Prompt = max(prompt, 3*took[len(took)/2])
	for _, d := range took {
		if d > s.Prompt {
			s.Delayed++
		}
	}
	s.FailedMounts = l.run.FailedMounts(l.users[0].Made)
	return s
}
