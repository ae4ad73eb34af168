package lease

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// explain wraps err with the operation, the path, and the reader's next step.
func (l *Lease) explain(operation string, err error) error {
	// The path is in our words already.
	if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	if hint := nextStep(err); hint != "" {
		return fmt.Errorf("%s %s: %w: %s", operation, l.path, err, hint)
	}
	return fmt.Errorf("%s %s: %w", operation, l.path, err)
}

func (l *Lease) inTheWay(info os.FileInfo) error {
	return fmt.Errorf("open %s: %w but %s: it was left as it is, move it away or remove it",
		l.path, ErrNotRegular, kind(info.Mode()))
}

// nextStep says what to do about err; empty if there is nothing to say.
func nextStep(err error) string {
	switch {
	case errors.Is(err, ErrHeld):
		return ""
	case errors.Is(err, syscall.EROFS):
		return "mount the directory read-write"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space or inodes there"
	case errors.Is(err, fs.ErrPermission):
		return "run all registrars of this node as one user and look for denials of SELinux or AppArmor"
	case errors.Is(err, fs.ErrNotExist):
		return "the directory is gone, restart the container so that it is mounted afresh"
	case errors.Is(err, syscall.ENOLCK), errors.Is(err, errors.ErrUnsupported):
		return "this file system grants no locks, use one that is local to the node"
	}
	return ""
}

func kind(m fs.FileMode) string {
	switch m.Type() {
	case fs.ModeDir:
		return "a directory"
	case fs.ModeSymlink:
		return "a symbolic link"
	case fs.ModeNamedPipe:
		return "a named pipe"
	case fs.ModeSocket:
		return "a socket"
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		return "a device"
	}
	return "something else (" + m.String() + ")"
}
