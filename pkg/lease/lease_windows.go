package lease

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// openFile opens the file, or creates it if it is absent. Others may open, lock
// and delete it meanwhile, and a link is opened itself rather than followed. An
// open file cannot be replaced here by a rename. A removed one can keep its name
// until the last one closes it (where deletion is not POSIX-like), and to open it
// says "access denied" till then.
func openFile(path string) (*os.File, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	handle, err := windows.CreateFile(name,
		windows.GENERIC_READ|windows.GENERIC_WRITE,
		windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE,
		nil, windows.OPEN_ALWAYS,
		windows.FILE_ATTRIBUTE_NORMAL|windows.FILE_FLAG_OPEN_REPARSE_POINT, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(handle), path), nil
}

// wholeFile is what is locked: the file is empty, and its contents mean nothing.
const wholeFile = ^uint32(0)

// lock never waits. A lock of another kind that is held is let go first, as
// flock(2) does elsewhere: here the two would exclude each other.
func lock(file *os.File, m mode) error {
	_ = unlock(file)
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if m == exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := control(file, func(handle windows.Handle) error {
		return windows.LockFileEx(handle, flags, 0, wholeFile, wholeFile, new(windows.Overlapped))
	})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrHeld
	}
	return err
}

func unlock(file *os.File) error {
	return control(file, func(handle windows.Handle) error {
		return windows.UnlockFileEx(handle, 0, wholeFile, wholeFile, new(windows.Overlapped))
	})
}

func control(file *os.File, do func(windows.Handle) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var doErr error
	if err := conn.Control(func(fd uintptr) { doErr = do(windows.Handle(fd)) }); err != nil {
		return err
	}
	return doErr
}

func unlink(path string) error {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return err
	}
	return windows.DeleteFile(name)
}
