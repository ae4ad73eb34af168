package kubelet_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
	"golang.org/x/sys/unix"
)

// TestLeaseHolderFrozen: somebody keeps the lease exclusively and does not move.
// A start goes on without it after a second and keeps trying.
func TestLeaseHolderFrozen(t *testing.T) {
	t.Parallel()
	t.Run("for a while", func(t *testing.T) {
		t.Parallel()
		n := harness.New(t, bin)
		n.StartKubelet()
		n.StartDriver()
		release := n.LockLease()
		ours := n.Start(harness.Ours)
		n.AwaitAcceptor(soon, ours)
		n.AwaitRegistered(soon)
		release()
		n.AwaitLease(soon, ours)
		ours.Terminate()
		n.AwaitGone(soon)
		n.AssertLeft()
	})
	t.Run("to the end", func(t *testing.T) {
		t.Parallel()
		n := harness.New(t, bin)
		n.StartKubelet()
		n.StartDriver()
		defer n.LockLease()()
		ours := n.Start(harness.Ours)
		n.AwaitRegistered(soon)
		ours.Terminate()
		n.AssertLeft(lease, sock) // no lease, no removal
	})
}

// TestLeaverFrozen: one of ours stands still somewhere in its own leaving, which
// may be with the lease held exclusively; another starts and registers, and
// nothing bad comes of it when the leaver thaws.
func TestLeaverFrozen(t *testing.T) {
	t.Parallel()
	for _, ms := range []int{0, 1, 2, 3, 5, 8, 12} {
		t.Run(time.Duration(ms*int(time.Millisecond)).String(), func(t *testing.T) {
			t.Parallel()
			n, _, _, leaver := registered(t, silent)
			leaver.SendTerm()
			<-time.After(time.Duration(ms) * time.Millisecond) // what is tested
			leaver.Freeze()
			next := n.Start(harness.Ours)
			n.AwaitAcceptor(soon, next)
			n.AwaitRegistered(soon)
			leaver.Thaw()
			if code := leaver.AwaitExit(soon); code != 0 {
				t.Errorf("exit %d, want 0", code)
			}
			n.AwaitAcceptor(soon, next)
			n.AwaitQuiet(onePair, soon)
			n.AwaitRegistered(soon)
			n.AwaitLease(soon, next)
			next.Terminate()
			n.AwaitGone(soon)
			n.AssertLeft()
		})
	}
}

// TestLeaseImpossible: where the lock cannot be had it says why, serves as
// usual, also in an overlap, and removes nothing.
func TestLeaseImpossible(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(outside, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func(path string) error{
		"directory": func(path string) error { return os.MkdirAll(path+"/precious", 0o755) },
		"symlink":   func(path string) error { return os.Symlink(outside, path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			n.StartKubelet()
			n.StartDriver()
			if err := put(n.Lease); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(n.Lease)
			if err != nil {
				t.Fatal(err)
			}
			withoutLease(n, nil)
			n.AssertLeft(lease, sock)
			if after, err := os.Lstat(n.Lease); err != nil || !os.SameFile(before, after) || before.Mode() != after.Mode() {
				t.Errorf("what is in the lease's place was touched: %v, %v", after, err)
			}
		})
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "precious" {
		t.Errorf("the symlink was followed: %q, %v", data, err)
	}
}

// TestNoFlock: a file system that knows no locks.
func TestNoFlock(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{unix.ENOLCK, unix.EOPNOTSUPP} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			n.StartKubelet()
			n.StartDriver()
			withoutLease(n, denied(t, unix.SYS_FLOCK, errno))
			n.AssertLeftAmong(lease, sock)
		})
	}
}

// withoutLease is an overlap of two that cannot have the lease.
func withoutLease(n *harness.Node, launcher []string) {
	old := n.StartUnder(launcher, harness.Ours)
	n.AwaitAcceptor(soon, old)
	n.AwaitRegistered(soon)
	newer := n.StartUnder(launcher, harness.Ours)
	n.AwaitAcceptor(soon, newer)
	n.AwaitQuiet(onePair, soon)
	began := n.Mark("the old one leaves")
	old.Terminate()
	n.AwaitQuiet(onePair, soon)
	n.AssertFileEvents(began, 0, 0)
	n.AssertOut(began, 0, 0)
	n.AwaitAcceptor(soon, newer)
	for _, p := range []*harness.Proc{old, newer} {
		if p.Said("lock") == 0 && p.Said("lease") == 0 {
			n.Errorf("%s says nothing about the lock it cannot have", p.Name)
		}
	}
	ended := n.Mark("the new one leaves")
	newer.Terminate()
	n.AssertFileEvents(ended, 0, 0)
}

func denied(t *testing.T, number uint32, errno syscall.Errno) []string {
	t.Helper()
	launcher, err := harness.Denied(number, errno)
	if err != nil {
		t.Fatal(err)
	}
	return launcher
}

// TestNoInotify: without an inotify instance everything works, slower.
func TestNoInotify(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver()
	launcher := denied(t, unix.SYS_INOTIFY_INIT1, unix.EMFILE)
	ours := n.StartUnder(launcher, harness.Ours)
	n.AwaitAcceptor(soon, ours)
	n.AwaitRegistered(soon)
	for range 3 {
		if err := os.Remove(n.Path); err != nil {
			t.Fatal(err)
		}
		n.AwaitAcceptor(3*time.Second, ours)
	}
	newer := n.StartUnder(launcher, harness.Ours)
	n.AwaitAcceptor(soon, newer)
	newer.Kill()
	n.AwaitAcceptor(soon, ours)
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(soon)
	ours.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestNoRenameat2: a kernel or file system without RENAME_NOREPLACE; a hard link
// does its work.
func TestNoRenameat2(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{unix.EINVAL, unix.ENOSYS} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			n.StartKubelet()
			n.StartDriver()
			ours := n.StartUnder(denied(t, unix.SYS_RENAMEAT2, errno), harness.Ours)
			n.AwaitAcceptor(soon, ours)
			n.AwaitRegistered(soon)
			n.AwaitQuiet(onePair, soon)
			n.AssertFileEvents(ours.Started, 1, 0)
			entries, err := os.ReadDir(n.Registry)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if strings.HasSuffix(e.Name(), ".tmp") {
					t.Errorf("left beside the socket: %s", e.Name())
				}
			}
			ours.Terminate()
			n.AwaitGone(soon)
			n.AssertLeft()
		})
	}
}

// TestLeaseFileRemoved: somebody removes the lock's file beside an overlap, and
// the acceptor leaves before the standby can have joined the new one. A standby
// holds a connection to it: that is the second witness that somebody lives.
func TestLeaseFileRemoved(t *testing.T) { inBothModes(t, leaseFileRemoved) }

func leaseFileRemoved(t *testing.T, m mode) {
	n, _, _, old, newer := overlap(t, m)
	newer.Freeze()
	old.Freeze()
	began := n.Mark("the lease is removed, the acceptor leaves, and only then the standby may move")
	if err := os.Remove(n.Lease); err != nil {
		t.Fatal(err)
	}
	sent := newer.SendTerm() // pending until it thaws
	newer.Thaw()
	newer.AwaitTerm(sent)
	old.Thaw()
	n.AwaitAcceptor(soon, old)
	n.AwaitLease(soon, old)
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(soon)
	m.assertTakeover(n, began)
	old.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}
