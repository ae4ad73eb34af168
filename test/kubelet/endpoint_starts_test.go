package kubelet_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// startsFromEnv is how often each driver starts: HOLDFAST_STARTS, or 20. With more, as
// in a soak, there are slower drivers too.
func startsFromEnv(t *testing.T) (starts int, soak bool) {
	t.Helper()
	const usual = 20
	s := os.Getenv("HOLDFAST_STARTS")
	if s == "" {
		return usual, false
	}
	starts, err := strconv.Atoi(s)
	if err != nil || starts < 1 {
		t.Fatalf("HOLDFAST_STARTS=%s: %v", s, err)
	}
	return starts, starts > usual
}

// TestDriverStarts: a driver that removes csi.sock and binds it some time later starts
// again and again beside a live old one. It never finds its address in use, it is
// reached when it serves and the old one when it does not, and its end takes no longer
// than where there is no registrar. Each is ended HOLDFAST_STARTS times, and killed as
// often.
func TestDriverStarts(t *testing.T) {
	t.Parallel()
	starts, soak := startsFromEnv(t)
	delays := []time.Duration{0, 300 * time.Millisecond, time.Second}
	if soak {
		delays = append(delays, 5*time.Second, 30*time.Second)
	}
	for _, delay := range delays {
		t.Run(delay.String(), func(t *testing.T) {
			t.Parallel()
			// Slow ones share the work, for they do nothing but wait.
			shards := min(starts, 1+int(delay/(2*time.Second)))
			for i := range shards {
				t.Run(strconv.Itoa(i+1), func(t *testing.T) {
					t.Parallel()
					startAgain(t, delay, (starts+shards-1)/shards)
				})
			}
		})
	}
}

// startAgain starts a driver beside an old one, with a registrar and, as a control,
// without.
func startAgain(t *testing.T, delay time.Duration, starts int) {
	n := harness.New(t, bin)
	n.StartKubelet()
	old := n.StartDriver("--node-id=old")
	ours := n.Start(harness.Ours)
	n.AwaitRegistered(soon)
	n.AwaitNamed(soon)
	if got := n.Announced(); got != n.Endpoint {
		n.Fatalf("kubelet was told %s, want %s", got, n.Endpoint)
	}
	alone := n.AddPlugin("alone.example.com")
	alone.StartDriver()

	var with, without []time.Duration
	for i := range 2 * starts {
		took, tookAlone := startOnce(n, old, alone, delay, i)
		if i%2 == 0 { // it was asked to end
			with, without = append(with, took), append(without, tookAlone)
		}
	}
	n.Logf("exit after SIGTERM beside a registrar: median %v, worst %v; beside none: median %v, worst %v",
		median(with), slices.Max(with), median(without), slices.Max(without))
	// The median of a few says nothing on a busy machine.
	if m, c := median(with), median(without); len(with) >= 9 && m > c+200*time.Millisecond {
		n.Errorf("a driver ends %v after SIGTERM (median), and %v beside none", m, c)
	}
	if w, c := slices.Max(with), slices.Max(without); w > c+time.Second {
		n.Errorf("a driver ends %v after SIGTERM (worst), and %v beside none", w, c)
	}
	ours.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
	n.AssertDir()
}

// startOnce starts a driver beside an old one, and another one where there is no
// registrar, and ends them. Every second is killed: when it serves, or between its
// unlink and its bind. It gives how long their ends took.
func startOnce(n *harness.Node, old *harness.Proc, alone *harness.Plugin, delay time.Duration, i int) (took, tookAlone time.Duration) {
	args := []string{"--bind-delay=" + delay.String(), "--node-id=" + strconv.Itoa(i)}
	d, control := n.StartLateDriver(args...), alone.StartLateDriver(args...)
	if i%4 == 3 && delay > 0 {
		n.Await("it to remove csi.sock", soon, func() bool { return !slices.Contains(n.Listing(), "csi.sock") })
		n.AwaitReached(n.Announced(), soon, old)
		d.Kill()
		control.Kill()
		return 0, 0
	}
	for _, p := range []*harness.Proc{control, d} {
		n.Await(p.Name+" to serve, or to end", soon+delay, func() bool { return p.Said("serving ") > 0 || !p.Running() })
		if !p.Running() {
			n.Fatalf("start %d of a driver: %s", i+1, strings.Join(p.Lines(), "; "))
		}
	}
	n.AwaitReached(n.Announced(), soon, d)
	if i%2 == 1 {
		d.Kill()
		control.Kill()
	} else {
		took, tookAlone = d.Terminate(), control.Terminate()
	}
	n.AwaitReached(n.Announced(), soon, old)
	return took, tookAlone
}
