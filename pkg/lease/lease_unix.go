//go:build unix

package lease

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// openFile opens the file, or creates it if it is absent. It creates exclusively
// and separately, since O_CREAT on somebody else's file in a sticky directory is
// refused (fs.protected_regular). Read-write, because NFS wants that for an
// exclusive lock. O_NONBLOCK so that a pipe put in the way cannot hold us.
func openFile(path string) (*os.File, error) {
	const flags = os.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	for range reopenLimit {
		file, err := os.OpenFile(path, flags, 0)
		if !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
		file, err = os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return file, err
		}
	}
	return nil, ErrReplaced
}

// lock never waits. If it is refused, a lock that was held of another kind is
// gone too (flock(2)).
func lock(file *os.File, m mode) error {
	how := unix.LOCK_NB
	if m == exclusive {
		how |= unix.LOCK_EX
	} else {
		how |= unix.LOCK_SH
	}
	err := flock(file, how)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrHeld
	}
	return err
}

func unlock(file *os.File) error { return flock(file, unix.LOCK_UN) }

func flock(file *os.File, how int) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	err = conn.Control(func(fd uintptr) {
		for {
			lockErr = unix.Flock(int(fd), how)
			if !errors.Is(lockErr, unix.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return lockErr
}

// unlink is os.Remove without its second attempt, which removes directories.
func unlink(path string) error {
	for {
		err := unix.Unlink(path)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
