package kit

import (
	"encoding/json"
	"time"
)

// AwaitStats waits until kubelet has statistics of a pod's volume that it got from
// the driver after a time. How often it asks is its volumeStatsAggPeriod, a minute
// unless the node's configuration says otherwise.
func (r *Run) AwaitStats(u *User, after time.Time, limit time.Duration) {
	r.t.Helper()
	last := "none"
	looked := time.Time{}
	if !within(limit, func() bool {
		if time.Since(looked) < 500*time.Millisecond {
			return false
		}
		looked = time.Now()
		at, size, err := r.stats(u)
		switch {
		case err != nil:
			last = err.Error()
		case !at.IsZero():
			last = "those of " + at.Format(time.TimeOnly)
		default:
			last = "none"
		}
		return err == nil && at.After(after) && size > 0
	}) {
		r.t.Errorf("waited %v in vain for statistics of the volume of %s; kubelet's last: %s, wanted after %s", limit, u.Name, last, after.Format(time.TimeOnly))
	}
}

// stats asks kubelet through the API server for when it last got a volume's
// statistics, to the second, and for its size in bytes. The time is zero if it has none.
func (r *Run) stats(u *User) (at time.Time, size uint64, err error) {
	data, err := r.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(r.Node).
		SubResource("proxy").Suffix("stats/summary").DoRaw(r.ctx)
	if err != nil {
		return at, 0, err
	}
	var summary struct {
		Pods []struct {
			PodRef struct{ Name, Namespace string }
			Volume []struct {
				Name          string
				Time          time.Time
				CapacityBytes uint64
			}
		}
	}
	if err := json.Unmarshal(data, &summary); err != nil {
		return at, 0, err
	}
	for _, p := range summary.Pods {
		for _, v := range p.Volume {
			if p.PodRef.Name == u.Name && p.PodRef.Namespace == r.ns && v.Name == "data" {
				return v.Time, v.CapacityBytes, nil
			}
		}
	}
	return at, 0, nil
}
