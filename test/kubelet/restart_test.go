package kubelet_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// TestKubeletRestarts: kubelet scans the directory when it starts; nothing needs
// to be done, and nothing is.
func TestKubeletRestarts(t *testing.T) {
	t.Parallel()
	n, kubelet, _, ours := registered(t)
	began := n.Mark("kubelet restarts")
	kubelet.Terminate()
	n.StartKubelet()
	n.AwaitRegistered(soon)
	n.AwaitQuiet(onePair, soon)
	n.AssertOut(began, 0, 0)
	n.AssertFileEvents(began, 0, 0)
	ours.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestKubeletRestartsWiped: somebody empties the directory while kubelet is
// down, the lease included. The socket comes back, and so does the lease: the
// next overlap ends as cleanly as any.
func TestKubeletRestartsWiped(t *testing.T) {
	t.Parallel()
	n, kubelet, _, old := registered(t)
	kubelet.Terminate()
	began := n.Mark("the directory is emptied")
	wipe(t, n.Registry)
	n.StartKubelet()
	n.AwaitAcceptor(soon, old)
	n.AwaitRegistered(soon)
	n.AwaitQuiet(onePair, soon)
	n.AssertOut(began, onePair, 1)
	n.AwaitLease(soon, old)

	newer := n.Start(harness.Ours)
	n.AwaitAcceptor(soon, newer)
	n.AwaitLease(soon, old, newer)
	n.AwaitQuiet(onePair, soon)
	left := n.Mark("the old one leaves")
	old.Terminate()
	n.AwaitQuiet(onePair, soon)
	n.AssertOut(left, 0, 0)
	n.AssertFileEvents(left, 0, 0)
	newer.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

func wipe(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKubeletRestartsDirectoryReplaced: the directory itself is deleted and made
// anew. Where the process sees that by path it may go on or exit 1 and be
// restarted, as a container is; in the end the driver is registered.
func TestKubeletRestartsDirectoryReplaced(t *testing.T) {
	t.Parallel()
	n, kubelet, _, ours := registered(t)
	kubelet.Terminate()
	n.Mark("the directory is replaced")
	if err := os.RemoveAll(n.Registry); err != nil {
		t.Fatal(err)
	}
	n.MakeRegistry()
	n.StartKubelet()
	n.Await("healing or exit", soon, func() bool { return n.Registered() || !ours.Running() })
	if !ours.Running() {
		if code := ours.AwaitExit(soon); code != 1 {
			t.Errorf("exit %d, want 1", code)
		}
		ours = n.Start(harness.Ours)
	}
	n.AwaitAcceptor(soon, ours)
	n.AwaitRegistered(soon)
	ours.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestDirectoryReplacedUnderAMount: in a container the directory is a mount of
// what is there no more: nothing can be bound in it again. It says so and exits
// 1; the restarted container mounts afresh.
func TestDirectoryReplacedUnderAMount(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		skip(t, "needs root for a mount namespace")
	}
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver()
	inside := filepath.Join(n.Root, "registration")
	if err := os.Mkdir(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	container := []string{"unshare", "--mount", "--propagation=private", "sh", "-c",
		`mount --bind "$0" "$1" && shift && exec "$@"`, n.Registry, inside}
	// The later of two flags counts.
	ours := n.StartUnder(container, harness.Ours, "--plugin-registration-path="+inside)
	n.AwaitAcceptor(soon, ours)
	n.AwaitRegistered(soon)

	n.Mark("the directory is replaced")
	if err := os.RemoveAll(n.Registry); err != nil {
		t.Fatal(err)
	}
	n.MakeRegistry()
	if code := ours.AwaitExit(soon); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	next := n.StartUnder(container, harness.Ours, "--plugin-registration-path="+inside)
	n.AwaitAcceptor(soon, next)
	// Kubelet watches the directory that is gone until it restarts (K1).
	n.StartKubelet()
	n.AwaitRegistered(soon)
	next.Terminate()
	n.AssertLeft()
}

// TestKubeletRestartsBesideAFrozenAcceptor: kubelet cannot register then. A
// standby takes over; alone, the acceptor is registered when it thaws.
func TestKubeletRestartsBesideAFrozenAcceptor(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		n, kubelet, _, ours := registered(t)
		began := time.Now()
		ours.Freeze()
		kubelet.Terminate()
		n.StartKubelet()
		n.AwaitQuiet(onePair, soon)
		ours.Thaw()
		n.AwaitRegistered(patient)
		n.AwaitQuiet(onePair, soon)
		n.AssertOut(began, onePair, 1)
		ours.Terminate()
		n.AwaitGone(soon)
		n.AssertLeft()
	})
	t.Run("with a standby", func(t *testing.T) {
		t.Parallel()
		n, kubelet, _, standby, acceptor := overlap(t)
		began := time.Now()
		acceptor.Freeze()
		kubelet.Terminate()
		n.StartKubelet()
		n.AwaitAcceptor(patient, standby)
		n.AwaitRegistered(patient)
		acceptor.Thaw()
		n.AwaitQuiet(onePair, soon)
		n.AwaitAcceptor(soon, standby)
		n.AssertFileEvents(began, 1, 0)
		n.AssertOut(began, onePair, 1)
		acceptor.Terminate()
		standby.Terminate()
		n.AwaitGone(soon)
		n.AssertLeft()
	})
}
