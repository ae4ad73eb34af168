//go:build unix

package lease

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// openFile opens the file, or creates it if it is absent. It tries without
// O_CREAT first, which is refused on somebody else's file in a sticky directory
// (fs.protected_regular, proc_sys_fs(5)). Read-write, because NFS wants that for
// an exclusive lock. O_NONBLOCK, so that nothing put in the way can hold us.
func openFile(path string) (*os.File, error) {
	const flags = os.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK
	file, err := os.OpenFile(path, flags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return os.OpenFile(path, flags|os.O_CREATE, 0o600)
	}
	return file, err
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
