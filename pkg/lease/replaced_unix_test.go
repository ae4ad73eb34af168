//go:build unix

// On Windows an open file cannot be replaced, and a removed one may keep its name
// until it is closed.

package lease

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// replace puts another file at path, as a rename over it does.
func replace(t *testing.T, path string) {
	t.Helper()
	write(t, path+".new", "")
	check(t, os.Rename(path+".new", path))
}

// once calls do at the first time that step is reached.
func once(l *Lease, step string, do func()) {
	done := false
	l.at = func(at string) {
		if at == step && !done {
			done = true
			do()
		}
	}
}

// Proves that Join compares inodes while it holds the lock already.
func TestJoinFollowsTheFile(t *testing.T) {
	for name, change := range map[string]func(*testing.T, string){
		"removed":  func(t *testing.T, path string) { check(t, os.Remove(path)) },
		"replaced": replace,
	} {
		t.Run(name, func(t *testing.T) {
			path := leasePath(t)
			l := newLease(t, path)
			check(t, l.Join(now()))
			change(t, path)
			wantLocked(t, path, false)
			check(t, l.Join(now()))
			wantLocked(t, path, true)
		})
	}
}

// Proves that the old lock is kept until the new one is had, and not longer.
func TestJoinKeepsTheOldLock(t *testing.T) {
	path := leasePath(t)
	l := newLease(t, path)
	check(t, l.Join(now()))
	old := path + ".old"
	check(t, os.Rename(path, old))
	other := newLease(t, path)
	check(t, other.TryExclusive())

	wantErr(t, l.Join(now()), ErrHeld)
	wantHeld(t, l, true)
	wantLocked(t, old, true)

	other.Drop()
	check(t, l.Join(now()))
	wantLocked(t, old, false)
	wantLocked(t, path, true)
}

// Proves the look after the lock in acquire, for both kinds.
func TestReplacedWhileBeingLocked(t *testing.T) {
	for _, step := range []string{"looked", "opened", "locked"} {
		for name, lock := range map[string]func(*Lease) error{
			"shared":    func(l *Lease) error { return l.Join(now()) },
			"exclusive": (*Lease).TryExclusive,
		} {
			t.Run(name+" "+step, func(t *testing.T) {
				path := leasePath(t)
				l := newLease(t, path)
				once(l, step, func() { replace(t, path) })
				check(t, lock(l))
				wantLocked(t, path, true)
			})
		}
	}
}

func TestReplacedAgainAndAgain(t *testing.T) {
	path := leasePath(t)
	l := newLease(t, path)
	calm := make(chan struct{})
	l.at = func(step string) {
		select {
		case <-calm:
		default:
			if step == "locked" {
				check(t, os.Remove(path))
			}
		}
	}
	wantErr(t, l.TryExclusive(), ErrReplaced)
	wantErr(t, l.Join(now()), ErrReplaced)
	wantHeld(t, l, false)
	time.AfterFunc(30*time.Millisecond, func() { close(calm) })
	check(t, l.Join(soon(t))) // Proves that Join goes on after ErrReplaced.
	wantLocked(t, path, true)
}

// Proves the look after an upgrade, and that the new file's lock must be had too.
func TestReplacedAtTheExclusiveGrant(t *testing.T) {
	path := leasePath(t)
	l, other := newLease(t, path), newLease(t, path)
	check(t, l.Join(now()))
	once(l, "upgraded", func() {
		check(t, os.Remove(path))
		check(t, other.Join(now()))
	})
	wantErr(t, l.TryExclusive(), ErrHeld)
	wantHeld(t, l, false)
	other.Drop()
	check(t, l.TryExclusive())
	wantLocked(t, path, true)
}

// Proves that the old file's lock must be had too: its holder lives, and only
// has not noticed yet that the file was replaced.
func TestExclusiveCountsHoldersOfTheOldFile(t *testing.T) {
	path := leasePath(t)
	l, unaware := newLease(t, path), newLease(t, path)
	check(t, l.Join(now()))
	check(t, unaware.Join(now()))
	replace(t, path)
	wantErr(t, l.TryExclusive(), ErrHeld)
}

func TestDirectoryGone(t *testing.T) {
	path := leasePath(t)
	l := newLease(t, path)
	check(t, l.Join(now()))
	check(t, os.RemoveAll(filepath.Dir(path)))
	wantErr(t, l.Join(now()), os.ErrNotExist)
	wantHeld(t, l, true)
	wantErr(t, l.TryExclusive(), os.ErrNotExist)
	wantHeld(t, l, false)
}
