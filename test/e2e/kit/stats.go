package kit

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AwaitStats waits until a plugin's driver has given kubelet the statistics of a
// pod's volume after a time. That is in the driver's log: the API server refuses to be
// a proxy to a kubelet at a loopback address, so /stats/summary is not to be had on
// every node. How often kubelet asks is its volumeStatsAggPeriod, a minute unless its
// configuration says otherwise.
func (r *Run) AwaitStats(plugin string, u *User, after time.Time, limit time.Duration) {
	r.t.Helper()
	pod := r.Pods()[u.Name]
	if pod == nil {
		r.t.Fatalf("%s does not exist", u.Name)
	}
	path := "statistics of " + kubelet + "/pods/" + string(pod.UID) + "/"
	since := metav1.NewTime(after)
	options := &corev1.PodLogOptions{Container: "driver", SinceTime: &since}
	var looked time.Time
	r.Await("statistics of the volume of "+u.Name, limit, func() bool {
		if time.Since(looked) < 500*time.Millisecond {
			return false
		}
		looked = time.Now()
		for _, name := range r.Ready(plugin) {
			out, err := r.Client.CoreV1().Pods(r.ns).GetLogs(name, options).DoRaw(r.ctx)
			if err == nil && strings.Contains(string(out), path) {
				return true
			}
		}
		return false
	})
}
