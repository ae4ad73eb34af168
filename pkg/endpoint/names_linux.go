package endpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func supported() error { return nil }

// errOdd says that something other than a socket stands at a name.
var errOdd = errors.New("not a socket")

// Read looks at all names. The error wraps ErrDirGone if the directory is gone,
// or the errno. It changes nothing.
func (n *Names) Read() (Listing, error) {
	entries, err := n.entries()
	if err != nil {
		return Listing{}, err
	}
	var l Listing
	l.Socket, err = socketAt(n.socket)
	switch {
	case errors.Is(err, errOdd):
		l.SocketOdd = err
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return Listing{}, explain("look at", n.socket, err)
	}
	for _, name := range entries {
		if id, ok := n.named(name); ok {
			l.Others = append(l.Others, id)
		}
	}
	slices.SortFunc(l.Others, func(a, b ID) int {
		return cmp.Or(cmp.Compare(b.Made, a.Made), cmp.Compare(b.Ino, a.Ino))
	})
	l.Named = slices.Contains(l.Others, l.Socket)
	if l.Link, err = n.readLink(n.link); err != nil {
		return Listing{}, explain("look at", n.link, err)
	}
	if l.Link.Kind == ToName {
		if id, ok := n.named(n.second(l.Link.ID.Ino)); ok {
			l.Link.ID = id
		}
	}
	return l, nil
}

// entries lists the directory.
func (n *Names) entries() ([]string, error) {
	if err := n.dirGone(); err != nil {
		return nil, err
	}
	dir, err := os.Open(n.dir)
	if err != nil {
		return nil, explain("read", n.dir, err)
	}
	defer dir.Close()
	entries, err := dir.Readdirnames(-1)
	if errors.Is(err, fs.ErrNotExist) { // Also what overlayfs says of a removed one.
		return nil, n.errDirGone("it was removed, restart the container so that it is mounted afresh")
	}
	if err != nil {
		return nil, explain("read", n.dir, err)
	}
	return entries, nil
}

// named identifies the socket at name if that is a second name which does not
// lie.
func (n *Names) named(name string) (ID, bool) {
	ino, ok := n.inode(name)
	if !ok {
		return ID{}, false
	}
	id, err := socketAt(filepath.Join(n.dir, name))
	return id, err == nil && id.Ino == ino
}

// readLink says where the symlink at path points.
func (n *Names) readLink(path string) (Target, error) {
	text, err := os.Readlink(path)
	switch {
	case err == nil:
		return n.target(text), nil
	case errors.Is(err, fs.ErrNotExist):
		return Target{}, nil
	case errors.Is(err, unix.EINVAL): // Not a symlink.
		return Target{Kind: Foreign}, nil
	}
	return Target{}, err
}

// Pin gives csi.sock its second name if it is exactly id. It is no error if id
// has it already.
//
// It links the very inode that was judged, through a descriptor, so a name that
// lies is never made. The error wraps ErrChanged if csi.sock is another by now, or
// absent; ErrForeign if something else has the name; ErrNoLinks if there is no
// hope; ErrDirGone; or the errno. After each no name was made.
func (n *Names) Pin(id ID) error {
	if id.Ino == 0 {
		return fmt.Errorf("link %s: %w: nothing was judged", n.socket, ErrChanged)
	}
	path := n.Path(id)
	if done, err := n.pinned(path, id); done || err != nil {
		return err
	}
	file, err := n.open("link", n.socket, id)
	if err != nil {
		return err
	}
	defer file.Close()
	address, err := addressOf("link", file)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoLinks, err)
	}
	n.seams.at("judged")
	err = retry(func() error {
		return unix.Linkat(unix.AT_FDCWD, address, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EEXIST):
		n.seams.at("exists")
		done, err := n.pinned(path, id)
		if err == nil && !done {
			return n.notIt("link", path, nil) // A peer made it and removed it: look again.
		}
		return err
	case errors.Is(err, unix.ENOENT): // It has lost its last name, or the directory is gone.
		return n.notIt("link", n.socket, err)
	}
	return explainLink(n.socket, err)
}

// pinned reports whether id has its second name. The error is ErrForeign if
// something that lies is there, and ErrChanged if it is another with the same
// number.
func (n *Names) pinned(path string, id ID) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, explain("look at", path, err)
	}
	there, _ := idOf(info)
	if there.Ino != id.Ino {
		return false, foreign("link", path, info)
	}
	if there != id {
		return false, fmt.Errorf("link %s: %w", path, ErrChanged)
	}
	return true, nil
}

// notIt returns the error for a look that did not find what was judged: err, or
// that it found another.
func (n *Names) notIt(operation, path string, err error) error {
	if err == nil {
		return fmt.Errorf("%s %s: %w", operation, path, ErrChanged)
	}
	if errors.Is(err, errOdd) {
		return fmt.Errorf("%s %s: %w: %w", operation, path, ErrChanged, err)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return explain(operation, path, err)
	}
	if goneErr := n.dirGone(); goneErr != nil {
		return goneErr
	}
	return fmt.Errorf("%s %s: %w: it was removed", operation, path, ErrChanged)
}

// Turn points the symlink to what to says, which must be csi.sock (there or not)
// or a second name (which must be exactly to.ID). It does so in one step, and
// only if the symlink is still what from says; of from.ID only the name counts.
//
// The error wraps ErrChanged if one of them is something else by now, ErrForeign
// if what stands there is not ours, ErrDirGone, or the errno. After each the
// symlink is as it was, and no temporary name is left.
func (n *Names) Turn(from, to Target) error {
	var text string
	switch to.Kind {
	case ToSocket:
		text = n.base
	case ToName:
		text = n.second(to.ID.Ino)
		if there, err := socketAt(n.Path(to.ID)); err != nil || there != to.ID {
			return n.notIt("point to", n.Path(to.ID), err)
		}
	case NoLink, Foreign:
		return fmt.Errorf("turn %s: cannot point it to nothing", n.link)
	}
	if from.Kind == NoLink { // symlink(2) never replaces anything, and needs no temporary name.
		err := os.Symlink(text, n.link)
		if errors.Is(err, fs.ErrExist) {
			n.seams.at("exists")
			if err := n.judge(from); err != nil {
				return err
			}
			return n.notIt("turn", n.link, nil)
		}
		return n.explainTurn(err)
	}
	temp := n.newTemp()
	if err := os.Symlink(text, temp); err != nil {
		return n.explainTurn(err)
	}
	err := n.replace(temp, from)
	if err != nil {
		if left, _ := os.Readlink(temp); left == text {
			_ = unlink(temp)
		}
	}
	return err
}

// replace gives temp the name of the symlink if that is still what from says.
func (n *Names) replace(temp string, from Target) error {
	n.seams.at("linked")
	if err := n.judge(from); err != nil {
		return err
	}
	n.seams.at("judged")
	err := retry(func() error { return unix.Rename(temp, n.link) })
	if errors.Is(err, unix.ENOENT) {
		return n.notIt("turn", n.link, err) // A peer has swept temp, or the directory is gone.
	}
	return explain("turn", n.link, err)
}

// judge returns nil if the symlink is still what from says.
func (n *Names) judge(from Target) error {
	there, err := n.readLink(n.link)
	if err != nil {
		return explain("turn", n.link, err)
	}
	if there.Kind == Foreign {
		if info, err := os.Lstat(n.link); err == nil {
			return foreign("turn", n.link, info)
		}
		return fmt.Errorf("turn %s: %w", n.link, ErrForeign)
	}
	if there.Kind != from.Kind || there.ID.Ino != from.ID.Ino {
		return n.notIt("turn", n.link, nil)
	}
	return nil
}

func (n *Names) explainTurn(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return explain("turn", n.link, err)
	}
	if goneErr := n.dirGone(); goneErr != nil {
		return goneErr
	}
	return n.errDirGone("it is there, yet nothing can be made in it, restart the container so that it is mounted afresh")
}

// Remove unlinks the second name of id if it is still exactly that. It is no
// error if nothing is there. The error wraps ErrChanged, or the errno; after
// each nothing was removed. It never removes csi.sock.
func (n *Names) Remove(id ID) error {
	path := n.Path(id)
	if id.Ino == 0 {
		return fmt.Errorf("remove %s: %w: nothing was judged", path, ErrChanged)
	}
	there, err := socketAt(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || there != id {
		return n.notIt("remove", path, err)
	}
	n.seams.at("judged")
	if err := unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return explain("remove", path, err)
	}
	return nil
}

// Sweep removes the symlinks that a crash left under a temporary name of ours,
// and returns their paths. They go only if they point where ours do and are
// older than olderThan; Turn needs them for microseconds.
func (n *Names) Sweep(olderThan time.Duration) (removed []string, err error) {
	entries, err := n.entries()
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, name := range entries {
		path := filepath.Join(n.dir, name)
		if !n.isTemp(path) {
			continue
		}
		info, err := os.Lstat(path)
		if err != nil || time.Since(info.ModTime()) <= olderThan {
			continue
		}
		target, err := n.readLink(path)
		if err != nil || target.Kind == Foreign {
			continue
		}
		n.seams.at("judged")
		err = unlink(path)
		if errors.Is(err, unix.ENOENT) { // A peer was faster.
			continue
		}
		if err != nil {
			failures = append(failures, explain("remove", path, err))
			continue
		}
		removed = append(removed, path)
	}
	slices.Sort(removed)
	return removed, errors.Join(failures...)
}

// socketAt identifies the socket at path; links are not followed.
func socketAt(path string) (ID, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return ID{}, err
	}
	id, ok := idOf(info)
	if !ok {
		return ID{}, fmt.Errorf("%w but %s, mode %v, %d bytes", errOdd, kind(info.Mode()), info.Mode(), info.Size())
	}
	return id, nil
}

// idOf identifies a socket; anything else is not ok.
func idOf(info fs.FileInfo) (ID, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode().Type() != fs.ModeSocket {
		return ID{}, false
	}
	return ID{Dev: uint64(stat.Dev), Ino: stat.Ino, Made: stat.Mtim.Nano()}, true
}

func unlink(path string) error { return retry(func() error { return unix.Unlink(path) }) }

func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
