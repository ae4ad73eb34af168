package lease

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

func leasePath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), ".hostpath.csi.k8s.io-reg.lease")
}

func write(t *testing.T, path, contents string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte(contents), 0o600))
}

func TestNewTouchesNothing(t *testing.T) {
	path := leasePath(t)
	l := newLease(t, path)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("look at the path after New: %v", err)
	}
	wantHeld(t, l, false)
	l.Drop() // Without a lock it does nothing.
	if _, err := New(""); err == nil {
		t.Fatal("an empty path is accepted")
	}
}

func TestSharedBySeveralExclusiveForNone(t *testing.T) {
	path := leasePath(t)
	a, b := newLease(t, path), newLease(t, path)
	check(t, a.Join(now()))
	check(t, b.Join(now()))
	check(t, b.Join(now())) // Idempotent.
	wantHeld(t, a, true)

	wantErr(t, a.TryExclusive(), ErrHeld)
	wantHeld(t, a, false)      // Proves the drop in TryExclusive after a refusal:
	check(t, b.TryExclusive()) // b is alone now.
	check(t, b.TryExclusive()) // Idempotent.
	wantErr(t, a.Join(now()), ErrHeld)
	check(t, b.Join(now())) // Back to shared.
	check(t, a.Join(now()))
}

func TestJoinWaitsForItsCtx(t *testing.T) {
	path := leasePath(t)
	holder, l := newLease(t, path), newLease(t, path)
	check(t, holder.TryExclusive())

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	wantErr(t, l.Join(ctx), ErrHeld)
	if ctx.Err() == nil {
		t.Fatal("it gave up before the end of ctx") // Proves the loop.
	}
	wantHeld(t, l, false)

	refused := make(chan struct{})
	var first sync.Once
	l.at = func(step string) {
		if step == "opened" {
			first.Do(func() { close(refused) })
		}
	}
	joined := make(chan error)
	go func() { joined <- l.Join(soon(t)) }()
	<-refused
	holder.Drop()
	check(t, <-joined)
	wantHeld(t, l, true)
}

func TestRemove(t *testing.T) {
	path := leasePath(t)
	l := newLease(t, path)
	wantErr(t, l.Remove(), ErrNotExclusive)
	check(t, l.Join(now()))
	wantErr(t, l.Remove(), ErrNotExclusive) // Proves the guard on the mode.
	check(t, l.TryExclusive())
	check(t, l.Remove())
	wantHeld(t, l, false)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("look at the path after Remove: %v", err)
	}
	check(t, l.Join(now()))
}

// Proves that Remove compares inodes.
func TestRemoveOnlyOurs(t *testing.T) {
	for name, put := range map[string]func(*testing.T, string){
		"nothing":        func(*testing.T, string) {},
		"another file":   func(t *testing.T, path string) { write(t, path, "somebody's") },
		"a directory":    func(t *testing.T, path string) { check(t, os.Mkdir(path, 0o700)) },
		"a link to ours": func(t *testing.T, path string) { check(t, os.Symlink(path+".old", path)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := leasePath(t)
			l := newLease(t, path)
			check(t, l.TryExclusive())
			check(t, os.Rename(path, path+".old"))
			put(t, path)
			before, _ := os.Lstat(path)
			wantErr(t, l.Remove(), ErrReplaced)
			after, _ := os.Lstat(path)
			if before != nil && !os.SameFile(before, after) {
				t.Fatal("somebody else's file was removed")
			}
			wantHeld(t, l, true) // As it was.
			wantLocked(t, path+".old", true)
		})
	}
}

func TestClosed(t *testing.T) {
	path := leasePath(t)
	l := newLease(t, path)
	check(t, l.Join(now()))
	check(t, l.Close())
	check(t, l.Close())
	wantHeld(t, l, false)
	wantErr(t, l.Join(now()), os.ErrClosed)
	wantErr(t, l.TryExclusive(), os.ErrClosed)
	wantErr(t, l.Remove(), os.ErrClosed)
	wantLocked(t, path, false)
}

func TestCloseEndsAWaitingJoin(t *testing.T) {
	path := leasePath(t)
	holder, l := newLease(t, path), newLease(t, path)
	check(t, holder.TryExclusive())
	refused := make(chan struct{})
	var first sync.Once
	l.at = func(string) { first.Do(func() { close(refused) }) }
	joined := make(chan error)
	go func() { joined <- l.Join(soon(t)) }()
	<-refused
	check(t, l.Close())
	wantErr(t, <-joined, os.ErrClosed)
}

// For the race detector.
func TestConcurrentUse(t *testing.T) {
	l := newLease(t, leasePath(t))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				_ = l.Join(now())
				_ = l.Held()
				_ = l.TryExclusive()
				l.Drop()
			}
		})
	}
	all.Wait()
	wantHeld(t, l, false)
}

func TestErrorsSayWhatToDo(t *testing.T) {
	l := newLease(t, "/registration/.x-reg.lease")
	for err, want := range map[error]string{
		syscall.EROFS:   "mount the directory read-write",
		syscall.ENOSPC:  "free some space or inodes there",
		syscall.EDQUOT:  "free some space or inodes there",
		syscall.EACCES:  "run all registrars of this node as one user and look for denials of SELinux or AppArmor",
		syscall.ENOENT:  "the directory is gone, restart the container so that it is mounted afresh",
		syscall.ENOLCK:  "this file system grants no locks, use one that is local to the node",
		syscall.ENOTSUP: "this file system grants no locks, use one that is local to the node",
		ErrHeld:         "",
	} {
		want := "lock /registration/.x-reg.lease: " + err.Error() + map[bool]string{true: ": "}[want != ""] + want
		wrapped := l.explain("lock", &os.PathError{Op: "flock", Path: "x", Err: err})
		wantErr(t, wrapped, err)
		if wrapped.Error() != want {
			t.Errorf("got  %s\nwant %s", wrapped, want)
		}
	}
}
