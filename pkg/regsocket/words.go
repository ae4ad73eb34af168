package regsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// explain wraps err with the operation, the path, and the reader's next step.
func explain(operation, path string, err error) error {
	if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
		err = inner.Err // The path is in our words already.
	}
	if hint := nextStep(err); hint != "" {
		return fmt.Errorf("%s %s: %w: %s", operation, path, err, hint)
	}
	return fmt.Errorf("%s %s: %w", operation, path, err)
}

// nextStep says what to do about err; empty if there is nothing to say.
func nextStep(err error) string {
	switch {
	case errors.Is(err, syscall.EROFS):
		return "mount the registration directory read-write"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space or inodes there"
	case errors.Is(err, fs.ErrPermission):
		return "run as root, and look for denials of SELinux or AppArmor"
	case errors.Is(err, syscall.ENOTDIR):
		return "the registration directory is no directory, mount kubelet's plugins_registry there"
	}
	return ""
}

func notSocket(info fs.FileInfo) error {
	return fmt.Errorf("%w but %s%s, mode %v, %d bytes: it was left as it is, move it away or remove it",
		ErrNotSocket, kind(info.Mode()), owner(info), info.Mode(), info.Size())
}

func kind(m fs.FileMode) string {
	switch m.Type() {
	case 0:
		return "a regular file"
	case fs.ModeDir:
		return "a directory"
	case fs.ModeSymlink:
		return "a symbolic link"
	case fs.ModeNamedPipe:
		return "a named pipe"
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		return "a device"
	}
	return "something else"
}

// identify returns the ID of the socket at path; links are not followed.
func identify(path string) (ID, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return ID{}, err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return ID{}, notSocket(info)
	}
	return idOf(path, info)
}
