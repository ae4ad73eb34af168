package lease

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

var (
	// ErrHeld says that another open file holds the lock in a way that excludes
	// what was asked for.
	ErrHeld = errors.New("held by another process")
	// ErrReplaced says that the file at the path is not the locked one: somebody
	// removed or replaced it. Join again.
	ErrReplaced = errors.New("the lock file was removed or replaced")
	// ErrNotRegular says that something other than a regular file is in the way.
	// It was left as it is.
	ErrNotRegular = errors.New("not a regular file")
	// ErrNotExclusive says that Remove was called without the exclusive lock.
	ErrNotExclusive = errors.New("not held exclusively")
)

const (
	// tryEvery is the pause between two attempts of Join.
	tryEvery = 10 * time.Millisecond
	// reopenLimit bounds how often one attempt follows a file that is removed or
	// replaced between open and lock.
	reopenLimit = 4
)

type mode uint8

const (
	none mode = iota
	shared
	exclusive
)

// Lease is one holder of the lock. Two of them on one path exclude each other as
// two processes do, also within one process.
//
// All methods may be called concurrently. One that changes the lock does not
// wait for a Join that waits: to be sure that a Drop lasts, end the ctx of a
// running Join and wait for its return first, or Close.
type Lease struct {
	path string
	// at is a seam for tests: it is told each step between two system calls.
	at func(step string)

	mu     sync.Mutex
	file   *os.File // nil if and only if mode is none
	mode   mode
	closed bool
}

// New returns a Lease on the file at path, without touching it.
func New(path string) (*Lease, error) {
	if path == "" {
		return nil, errors.New("new lease: no path given")
	}
	return &Lease{path: path, at: func(string) {}}, nil
}

// Join takes the lock shared, or makes sure that it is held shared on the file
// that stands at the path now. The file is created (mode 0600) if it is absent.
//
// It tries at once, whatever ctx says, and then about every 10 ms until ctx is
// done. It returns an error that wraps ErrHeld if somebody held the lock
// exclusively to the end. Other errors are returned at the first attempt, in
// words: something else is in the way (ErrNotRegular), no permission, a
// read-only or full file system, one that grants no locks
// (errors.ErrUnsupported, syscall.ENOLCK).
//
// If the file was removed or replaced, the lock on the old one is kept until the
// new one is had, so after an error Held may still be true for a file that has
// lost its name. An exclusive lock is let go first and then taken shared; that
// is not atomic.
func (l *Lease) Join(ctx context.Context) error {
	retry := time.NewTimer(tryEvery)
	defer retry.Stop()
	for {
		err := l.join()
		if !errors.Is(err, ErrHeld) && !errors.Is(err, ErrReplaced) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-retry.C:
			retry.Reset(tryEvery)
		}
	}
}

func (l *Lease) join() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.errClosed("join")
	}
	switch l.mode {
	case none:
	case exclusive:
		l.drop()
	case shared:
		same, err := isAt(l.file, l.path)
		if err != nil {
			return l.explain("look at", err)
		}
		if same {
			return nil
		}
	}
	file, err := l.acquire(shared)
	if err != nil {
		return err
	}
	l.drop() // The old file's lock, only now that the new one is had.
	l.file, l.mode = file, shared
	return nil
}

// Held reports whether a lock is held, shared or exclusive. It does not look at
// the path: Join does.
func (l *Lease) Held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mode != none
}

// Drop lets go of the lock; the file stays. Without a lock it does nothing.
func (l *Lease) Drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
}

func (l *Lease) drop() {
	if l.file == nil {
		return
	}
	// Closing lets go too, but not before the last copy of the descriptor is
	// closed, and a child between fork and exec has one for a moment.
	_ = unlock(l.file)
	_ = l.file.Close()
	l.file, l.mode = nil, none
}

// TryExclusive asks once, without waiting, to be the only holder; the file is
// created if it is absent. The error wraps ErrHeld if anybody else holds the
// lock, and is worded as those of Join otherwise. After any error no lock is
// held, not even the shared one held before: the kernel drops it first (flock(2)).
//
// After nil the locked file stood at the path when the lock was already
// exclusive. If the file was removed or replaced while it was held shared, both
// locks must be had: a holder of the old file who has not joined anew counts.
func (l *Lease) TryExclusive() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.errClosed("ask exclusively for")
	}
	if l.file != nil {
		same, err := l.upgrade()
		if err != nil {
			l.drop()
			return err
		}
		if same {
			return nil
		}
	}
	file, err := l.acquire(exclusive)
	l.drop() // Whatever was held of an old file, or nothing.
	if err != nil {
		return err
	}
	l.file, l.mode = file, exclusive
	return nil
}

// upgrade makes the held lock exclusive and reports whether the file of it
// stands at the path.
func (l *Lease) upgrade() (bool, error) {
	if l.mode != exclusive {
		if err := lock(l.file, exclusive); err != nil {
			return false, l.explain("lock exclusively", err)
		}
		l.mode = exclusive
	}
	l.at("upgraded")
	same, err := isAt(l.file, l.path)
	if err != nil {
		return false, l.explain("look at", err)
	}
	return same, nil
}

// Remove unlinks the lock file and lets go of the lock. It does so only while
// the lock is held exclusively (else ErrNotExclusive) and only if the locked
// file stands at the path (else ErrReplaced). After an error nothing was
// removed and the lock is as it was.
//
// Look and unlink are two adjacent system calls. Only somebody who replaces the
// file between them without holding the lock could lose a file by it.
func (l *Lease) Remove() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.errClosed("remove")
	}
	if l.mode != exclusive {
		return fmt.Errorf("remove %s: %w", l.path, ErrNotExclusive)
	}
	same, err := isAt(l.file, l.path)
	if err != nil {
		return l.explain("look at", err)
	}
	if !same {
		return fmt.Errorf("remove %s: %w", l.path, ErrReplaced)
	}
	if err := unlink(l.path); err != nil {
		return l.explain("remove", err)
	}
	l.drop()
	return nil
}

// Close lets go of the lock for good. Later calls return an error that wraps
// os.ErrClosed; a waiting Join returns it within about 10 ms.
func (l *Lease) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
	l.closed = true
	return nil
}

// acquire opens the file at the path, locks it, and makes sure that it still
// stands there. The caller owns the file.
func (l *Lease) acquire(m mode) (*os.File, error) {
	for range reopenLimit {
		file, err := l.open()
		if err != nil {
			return nil, err
		}
		l.at("opened")
		if err := lock(file, m); err != nil {
			_ = file.Close()
			return nil, l.explain("lock", err)
		}
		l.at("locked")
		same, err := isAt(file, l.path)
		if same && err == nil {
			return file, nil
		}
		_ = file.Close()
		if err != nil {
			return nil, l.explain("look at", err)
		}
	}
	return nil, fmt.Errorf("lock %s: %w, again and again", l.path, ErrReplaced)
}

// open opens the file at the path, or creates it. It looks first, because to
// open a pipe or a device is to touch it, and looks again at what it has opened.
func (l *Lease) open() (*os.File, error) {
	info, err := os.Lstat(l.path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, l.inTheWay(info)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, l.explain("look at", err)
	}
	l.at("looked")
	file, err := openFile(l.path)
	if err != nil {
		if info, lookErr := os.Lstat(l.path); lookErr == nil && !info.Mode().IsRegular() {
			return nil, l.inTheWay(info)
		}
		return nil, l.explain("open", err)
	}
	info, err = file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = l.inTheWay(info)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// isAt reports whether file is what stands at path, links not followed. While
// file is open its inode number cannot be given to another.
func isAt(file *os.File, path string) (bool, error) {
	locked, err := file.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return os.SameFile(locked, there), nil
}

func (l *Lease) errClosed(operation string) error {
	return fmt.Errorf("%s %s: %w", operation, l.path, os.ErrClosed)
}
