package kubelet_test

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
	"golang.org/x/sys/unix"
)

// TestAcceptorKilled: with a survivor the registration goes on, without a remove
// that kubelet could see.
func TestAcceptorKilled(t *testing.T) { inBothModes(t, acceptorKilled) }

func acceptorKilled(t *testing.T, m mode) {
	n, _, _, survivor, acceptor := overlap(t, m)
	began := n.Mark("the acceptor is killed")
	acceptor.Kill()
	n.AwaitAcceptor(soon, survivor)
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(soon)
	m.assertTakeover(n, began)
	survivor.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestKilledAlone: nobody is there to repair anything; the next start does.
func TestKilledAlone(t *testing.T) { inBothModes(t, killedAlone) }

func killedAlone(t *testing.T, m mode) {
	n, _, _, ours := registered(t, m)
	began := n.Mark("the only one is killed")
	ours.Kill()
	n.AwaitQuiet(onePair, soon)
	n.AssertLeft(m.left(n, ours)...)
	n.AssertOut(began, 0, 0)

	next := n.Start(harness.Ours)
	n.AwaitAcceptor(soon, next)
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(soon)
	n.AssertFileEvents(began, 1, 0)
	n.AssertOut(began, onePairAtMost, 1)
	next.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestAcceptorKilledWhileTheDriverIsDown: a survivor whose driver does not
// answer has nothing to announce; it does so when the driver is back.
func TestAcceptorKilledWhileTheDriverIsDown(t *testing.T) {
	inBothModes(t, acceptorKilledWhileTheDriverIsDown)
}

func acceptorKilledWhileTheDriverIsDown(t *testing.T, m mode) {
	n, _, driver, survivor, acceptor := overlap(t, m)
	driver.Kill()
	began := n.Mark("the acceptor is killed, the driver is down")
	acceptor.Kill()
	n.AwaitQuiet(3*time.Second, soon)
	n.AssertFileEvents(began, 0, 0)

	back := n.Mark("the driver comes back")
	n.StartDriver("--node-id=back")
	n.AwaitAcceptor(soon, survivor)
	n.AwaitNodeID("back", soon)
	n.AwaitRegistered(soon)
	n.AwaitQuiet(onePair, soon)
	n.AssertFileEvents(back, 1, 0)
	survivor.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestSocketRemovedOnce: somebody removes the registration socket; the acceptor
// puts it back, once, and a standby beside it does nothing.
func TestSocketRemovedOnce(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		n, _, _, ours := registered(t, silent)
		removeOnce(t, n, ours)
		ours.Terminate()
		n.AssertLeft()
	})
	t.Run("with a standby", func(t *testing.T) {
		inBothModes(t, func(t *testing.T, m mode) {
			n, _, _, standby, acceptor := overlap(t, m)
			removeOnce(t, n, acceptor, standby)
			acceptor.Terminate()
			standby.Terminate()
			n.AssertLeft()
		})
	})
}

func removeOnce(t *testing.T, n *harness.Node, healers ...*harness.Proc) {
	t.Helper()
	began := n.Mark("the socket is removed")
	if err := os.Remove(n.Path); err != nil {
		t.Fatal(err)
	}
	n.AwaitAcceptor(soon, healers...)
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(soon)
	n.AssertOut(began, onePairAtMost+time.Second, 1) // one tick to see the remove, one the create
	// Each of ours may answer the same event once.
	n.AssertFileEvents(began, len(healers), 1)
}

// TestSocketRemovedFiftyTimes: it is put back each time, in no time.
func TestSocketRemovedFiftyTimes(t *testing.T) {
	t.Parallel()
	n, _, _, ours := registered(t, silent)
	began := time.Now()
	var took []time.Duration
	for range 50 {
		if err := os.Remove(n.Path); err != nil {
			t.Fatal(err)
		}
		removed := time.Now()
		n.AwaitAcceptor(soon, ours)
		took = append(took, time.Since(removed))
	}
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(patient)
	n.AssertFileEvents(began, 50, 50)
	t.Logf("put back: median %v, worst %v", median(took), slices.Max(took))
	// The poll alone would take half a second; make bench measures how fast it is.
	if m := median(took); m > 300*time.Millisecond {
		t.Errorf("put back after %v (median): the watch does not work", m)
	}
	if w := slices.Max(took); w > 3*time.Second {
		t.Errorf("put back after %v (worst)", w)
	}
	ours.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestPathIsNotOurs: what is not a socket is an error, and stays as it is.
func TestPathIsNotOurs(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path string) error{
		"a file":      func(path string) error { return os.WriteFile(path, []byte("precious"), 0o640) },
		"a directory": func(path string) error { return os.MkdirAll(path+"/precious", 0o750) },
		"a symlink":   func(path string) error { return os.Symlink("/dev/null", path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			n.StartDriver()
			if err := put(n.Path); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(n.Path)
			if err != nil {
				t.Fatal(err)
			}
			p := n.Start(harness.Ours)
			if code := p.AwaitExit(soon); code != 1 {
				t.Errorf("exit %d, want 1", code)
			}
			after, err := os.Lstat(n.Path)
			if err != nil {
				t.Fatal(err)
			}
			if !os.SameFile(before, after) || before.Mode() != after.Mode() || !before.ModTime().Equal(after.ModTime()) {
				t.Errorf("what stood at the path was touched: %v, was %v", after, before)
			}
		})
	}
}

// TestAcceptorFrozen: a standby takes over from an acceptor that answers no
// more, and keeps the path when the other thaws.
func TestAcceptorFrozen(t *testing.T) { inBothModes(t, acceptorFrozen) }

func acceptorFrozen(t *testing.T, m mode) {
	n, _, _, survivor, acceptor := overlap(t, m)
	began := time.Now()
	acceptor.Freeze()
	n.AwaitAcceptor(patient, survivor)
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(soon)
	n.AssertFileEvents(began, 1, 0)
	n.AssertOut(began, onePairAtMost, 1)

	thawed := time.Now()
	acceptor.Thaw()
	n.AwaitQuiet(3*time.Second, soon)
	n.AssertFileEvents(thawed, 0, 0)
	n.AssertOut(thawed, 0, 0)
	n.AwaitAcceptor(soon, survivor)
	acceptor.Terminate()
	survivor.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestStandbyFrozen: the acceptor leaves beside a frozen standby. It cannot know
// whether the other lives: the path stays, and the other puts it right.
func TestStandbyFrozen(t *testing.T) { inBothModes(t, standbyFrozen) }

func standbyFrozen(t *testing.T, m mode) {
	n, _, _, standby, acceptor := overlap(t, m)
	standby.Freeze()
	began := n.Mark("the acceptor leaves beside a frozen standby")
	acceptor.Terminate()
	n.AssertLeft(m.left(n, standby)...)
	standby.Thaw()
	n.AwaitAcceptor(soon, standby)
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(soon)
	m.assertTakeover(n, began)
	standby.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestFrozenAlone: the only one is frozen, a new one starts and takes over.
func TestFrozenAlone(t *testing.T) { inBothModes(t, frozenAlone) }

func frozenAlone(t *testing.T, m mode) {
	n, _, _, frozen := registered(t, m)
	frozen.Freeze()
	began := time.Now()
	next := n.Start(harness.Ours)
	n.AwaitAcceptor(soon, next)
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(soon)
	n.AssertFileEvents(began, 1, 0)
	n.AssertOut(began, onePairAtMost, 1)
	// A frozen one may live: the path stays.
	next.Terminate()
	n.AssertLeft(m.left(n, frozen)...)
	frozen.Thaw()
	n.AwaitAcceptor(soon, frozen)
	n.AwaitRegistered(soon)
	frozen.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestBacklogFull: the acceptor is frozen and so many have connected that the
// kernel refuses more. That is no reason to believe that nobody is there, nor to
// wait for ever.
func TestBacklogFull(t *testing.T) { inBothModes(t, backlogFull) }

func backlogFull(t *testing.T, m mode) {
	n, _, _, survivor, acceptor := overlap(t, m)
	acceptor.Freeze()
	began := time.Now()
	queued, err := fillBacklog(n.Path)
	defer func() {
		for _, fd := range queued {
			unix.Close(fd)
		}
	}()
	if err != nil {
		t.Fatalf("after %d connections: %v", len(queued), err)
	}
	n.Mark("%d connections wait, one more gets EAGAIN", len(queued))
	n.AwaitAcceptor(patient, survivor)
	n.AwaitQuiet(onePair, soon)
	n.AwaitRegistered(patient)
	n.AssertFileEvents(began, 1, 0)

	acceptor.Thaw()
	n.AwaitQuiet(onePair, soon)
	n.AwaitAcceptor(soon, survivor)
	acceptor.Terminate()
	survivor.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// fillBacklog connects until the kernel says EAGAIN.
func fillBacklog(path string) (fds []int, err error) {
	for range 100_000 {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fds, err
		}
		fds = append(fds, fd)
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); errors.Is(err, syscall.EAGAIN) {
			return fds, nil
		} else if err != nil {
			return fds, err
		}
	}
	return fds, errors.New("there is no end to it")
}

// TestFrozenBeforeNotify: the acceptor freezes after kubelet's GetInfo and thaws
// when kubelet has given up telling it the result, 5 s later. After a success
// kubelet v1.36 has let the driver go by then; after a refusal v1.34 never tries
// again by itself (K6).
func TestFrozenBeforeNotify(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ flag, gaveUp string }{
		"success": {"--node-info-failures=0", "failed to send registration status"},
		"refusal": {"--node-info-failures=1", "DeadlineExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			kubelet := n.StartKubelet()
			driver := n.StartDriver("--node-info-delay=3s", c.flag)
			ours := n.Start(harness.Ours)
			n.AwaitCall("validate", false, ours.Started, soon)
			ours.Freeze()
			if driver.Said("NodeGetInfo") > 0 {
				n.Fatalf("too late: the driver has answered already")
			}
			kubelet.AwaitSaid(c.gaveUp, patient)
			n.Mark("kubelet has given up")
			ours.Thaw()
			n.AwaitRegistered(patient)
			n.AwaitQuiet(2*onePair, patient)
			if !n.Registered() {
				n.Errorf("registered, but it did not last")
			}
			ours.Terminate()
			n.AwaitGone(soon)
			n.AssertLeft()
		})
	}
}
