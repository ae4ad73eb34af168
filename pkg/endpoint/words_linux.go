package endpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// explain wraps err with the operation, the path, and the reader's next step.
func explain(operation, path string, err error) error {
	if err == nil {
		return nil
	}
	if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
		err = inner.Err // The path is in our words already.
	}
	if inner := (*os.LinkError)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	hint := ""
	switch {
	case errors.Is(err, unix.EROFS):
		hint = ": mount the driver's directory read-write"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		hint = ": free some space or inodes there"
	case errors.Is(err, fs.ErrPermission):
		hint = ": run as root, and look for denials of SELinux or AppArmor"
	case errors.Is(err, unix.ENOTDIR):
		hint = ": the directory of --csi-address is no directory, mount the driver's there"
	}
	return fmt.Errorf("%s %s: %w%s", operation, path, err, hint)
}

// explainLink says why a socket can have no second name, if that is what err
// says.
func explainLink(path string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, unix.EPERM):
		hint = "the socket belongs to another user, or the file system has no hard links: run the registrar as the driver's user, or as root with CAP_FOWNER"
	case errors.Is(err, unix.EACCES):
		hint = "run as root, and look for denials of SELinux or AppArmor"
	case errors.Is(err, unix.EXDEV):
		hint = "the socket is a mount of its own: mount its directory instead"
	case errors.Is(err, unix.EROFS):
		hint = "mount the driver's directory read-write"
	case errors.Is(err, unix.EMLINK):
		hint = "it has too many names: remove some"
	case errors.Is(err, errors.ErrUnsupported):
		hint = "the file system has no hard links: put the driver's directory on another"
	default:
		return explain("link", path, err)
	}
	return fmt.Errorf("link %s: %w: %w: %s", path, ErrNoLinks, err, hint)
}

// dirGone returns an error that wraps ErrDirGone if nothing can stand in the
// directory. It judges by path. A directory that is removed below a mount keeps
// its path and has no links left.
func (n *Names) dirGone() error {
	info, err := os.Stat(n.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return n.errDirGone("it does not exist: mount the driver's directory there (--csi-address); if it was removed since, restart the container so that it is mounted afresh")
	case err != nil:
		return explain("look at", n.dir, err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink == 0 {
		return n.errDirGone("it was removed on the host below this mount, restart the container so that it is mounted afresh")
	}
	return nil
}

func (n *Names) errDirGone(why string) error {
	return fmt.Errorf("look at %s: %w: %s", n.dir, ErrDirGone, why)
}

// foreign says what is in the way.
func foreign(operation, path string, info fs.FileInfo) error {
	return fmt.Errorf("%s %s: %w but %s, mode %v, %d bytes: move it away or remove it",
		operation, path, ErrForeign, kind(info.Mode()), info.Mode(), info.Size())
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
	case fs.ModeSocket:
		return "a socket"
	}
	return "something else"
}
