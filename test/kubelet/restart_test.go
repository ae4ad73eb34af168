package kubelet_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// TestKubeletRestarts: kubelet scans the directory when it starts; nothing needs
// to be done, and nothing is.
func TestKubeletRestarts(t *testing.T) {
	t.Parallel()
	n, kubelet, _, ours := registered(t, silent)
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
	n, kubelet, _, old := registered(t, silent)
	kubelet.Terminate()
	began := n.Mark("the directory is emptied")
	wipe(t, n.Registry)
	n.StartKubelet()
	n.AwaitAcceptor(soon, old)
	n.AwaitRegistered(soon)
	n.AwaitQuiet(onePair, soon)
	n.AssertOut(began, onePairAtMost, 1)
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
	n, kubelet, _, ours := registered(t, silent)
	kubelet.Terminate()
	n.Mark("the directory is replaced")
	removeAll(t, n.Registry)
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
	kubelet := n.StartKubelet()
	n.StartDriver()
	container, inside := mounted(t, n, n.Registry)
	// The later of two flags counts.
	ours := n.StartUnder(container, harness.Ours, "--plugin-registration-path="+inside)
	n.AwaitAcceptor(soon, ours)
	n.AwaitRegistered(soon)

	n.Mark("the directory is replaced")
	removeAll(t, n.Registry)
	n.MakeRegistry()
	if code := ours.AwaitExit(soon); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	next := n.StartUnder(container, harness.Ours, "--plugin-registration-path="+inside)
	n.AwaitAcceptor(soon, next)
	// Kubelet watches the directory that is gone until it restarts (K1).
	kubelet.Terminate()
	n.StartKubelet()
	n.AwaitRegistered(soon)
	next.Terminate()
	n.AssertLeft()
}

// removeAll removes a directory in which somebody puts a socket back meanwhile, as an
// administrator would: by trying again.
func removeAll(t *testing.T, dir string) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for {
		err := os.RemoveAll(dir)
		if err == nil {
			return
		}
		if !errors.Is(err, syscall.ENOTEMPTY) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// mounted is a launcher that sees the directory under another name, as a mount,
// like a container does.
func mounted(t *testing.T, n *harness.Node, dir string) (launcher []string, inside string) {
	t.Helper()
	inside = filepath.Join(n.Root, "inside")
	if err := os.MkdirAll(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"unshare", "--mount", "--propagation=private", "sh", "-c",
		`mount --bind "$0" "$1" && shift && exec "$@"`, dir, inside}, inside
}

// TestDriverDirectoryReplacedUnderAMount: the same for the driver's directory: no
// driver will ever be seen in the old one. Even a registrar that does not watch it
// finds out when it next looks for its driver, which it does to announce it.
func TestDriverDirectoryReplacedUnderAMount(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		skip(t, "needs root for a mount namespace")
	}
	n := harness.New(t, bin)
	n.StartKubelet()
	driver := n.StartDriver()
	container, inside := mounted(t, n, n.Dir)
	ours := n.StartUnder(container, harness.Ours, "--compat=strict", "--csi-address="+filepath.Join(inside, "csi.sock"))
	n.AwaitAcceptor(soon, ours)
	n.AwaitRegistered(soon)

	began := n.Mark("the driver's directory is replaced")
	driver.Kill()
	removeAll(t, n.Dir)
	if err := os.Mkdir(n.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	n.StartDriver("--node-id=next")
	if err := os.Remove(n.Path); err != nil {
		t.Fatal(err)
	}
	if code := ours.AwaitExit(soon); code != 1 {
		t.Errorf("exit %d, want 1", code)
	}
	next := n.StartUnder(container, harness.Ours, "--compat=strict", "--csi-address="+filepath.Join(inside, "csi.sock"))
	n.AwaitAcceptor(soon, next)
	n.AwaitCall("register", false, began, soon)
	n.AwaitNodeID("next", soon)
	next.Terminate()
	n.AssertLeft()
}

// TestConfined: root's uid without a single capability, on a read-only root file
// system, is enough.
func TestConfined(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		skip(t, "needs root for a mount namespace")
	}
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver()
	confined := []string{"unshare", "--mount", "--propagation=private", "sh", "-c",
		`mount --bind "$0" "$0" && mount --bind "$1" "$1" && mount -o remount,bind,ro / && shift &&
		! touch /confined 2>/dev/null &&
		exec setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all --no-new-privs "$@"`, n.Registry, n.Dir}
	old := n.StartUnder(confined, harness.Ours)
	n.AwaitAcceptor(soon, old)
	n.AwaitRegistered(soon)
	if caps := old.Status("CapEff"); caps != "0000000000000000" {
		t.Fatalf("its capabilities are %s, want none", caps)
	}
	newer := n.StartUnder(confined, harness.Ours)
	n.AwaitAcceptor(soon, newer)
	old.Terminate()
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(soon)
	newer.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestKubeletRestartsBesideAFrozenAcceptor: kubelet cannot register then. A
// standby takes over; alone, the acceptor is registered when it thaws.
func TestKubeletRestartsBesideAFrozenAcceptor(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		n, kubelet, _, ours := registered(t, silent)
		began := time.Now()
		ours.Freeze()
		kubelet.Terminate()
		n.StartKubelet()
		n.AwaitQuiet(onePair, soon)
		ours.Thaw()
		n.AwaitRegistered(patient)
		n.AwaitQuiet(onePair, soon)
		n.AssertOut(began, onePairAtMost, 1)
		ours.Terminate()
		n.AwaitGone(soon)
		n.AssertLeft()
	})
	t.Run("with a standby", func(t *testing.T) {
		inBothModes(t, besideAFrozenAcceptor)
	})
}

func besideAFrozenAcceptor(t *testing.T, m mode) {
	n, kubelet, _, standby, acceptor := overlap(t, m)
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
	n.AssertOut(began, onePairAtMost, 1)
	acceptor.Terminate()
	standby.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}
