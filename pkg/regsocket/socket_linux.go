package regsocket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// backlog is more than the kernel allows, which cuts it to
// net.core.somaxconn (listen(2)), as Go's own listeners have it.
const backlog = 1<<16 - 1

// bindLimit bounds how often a temporary name that is taken is chosen anew.
const bindLimit = 4

// Socket is a listening registration socket of ours, first under a temporary
// name and after Publish at the path. It is a net.Listener; all methods may be
// called concurrently.
type Socket struct {
	place    *Place
	listener *net.UnixListener

	mu     sync.Mutex
	temp   string // The path of the temporary name; empty once it is gone.
	id     ID
	closed bool
}

// Bind makes a socket that listens under a temporary name, with mode 0600. The
// error wraps ErrDirGone if the directory is gone, or the errno.
func (p *Place) Bind() (*Socket, error) {
	var err error
	for range bindLimit {
		var s *Socket
		s, err = p.bind(p.tempName())
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	if !errors.Is(err, unix.ENOENT) {
		return nil, explain("bind in", p.dir, err)
	}
	// No such file: the directory. Overlayfs keeps the link count of a removed one.
	if goneErr := p.dirGone(); goneErr != nil {
		return nil, goneErr
	}
	return nil, p.errDirGone("it is there, yet nothing can be bound in it, restart the container so that it is mounted afresh")
}

// bind binds, sets the mode, and only then listens: nobody can connect before.
// The umask is left alone, because it is the whole process's.
func (p *Place) bind(name string) (*Socket, error) {
	address, done, err := p.address(name)
	if err != nil {
		return nil, err
	}
	defer done()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close() // The listener has a copy.
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: address}); err != nil {
		return nil, err
	}
	s := &Socket{place: p, temp: filepath.Join(p.dir, name)}
	if err := s.listen(file, fd); err != nil {
		s.dropTemp()
		return nil, err
	}
	return s, nil
}

func (s *Socket) listen(file *os.File, fd int) (err error) {
	// By now the name is ours, and whoever else takes it away does not matter.
	if s.id, err = identify(s.temp); err != nil {
		return err
	}
	s.place.seams.at("bound")
	if err := os.Chmod(s.temp, 0o600); err != nil {
		return err
	}
	private, err := identify(s.temp) // The mode moved ctime.
	if err == nil && !private.SameInode(s.id) {
		err = ErrChanged
	}
	if err != nil {
		return err
	}
	s.id = private
	s.place.seams.at("private")
	if err := unix.Listen(fd, backlog); err != nil {
		return err
	}
	// A listener made from a descriptor, unlike one made from a name, does not
	// unlink on Close (net.UnixListener.SetUnlinkOnClose): it would do so by name,
	// whoever's socket that is by then.
	listener, err := net.FileListener(file)
	if err != nil {
		return err
	}
	s.listener = listener.(*net.UnixListener)
	return nil
}

// address returns an address for name in the directory that fits into a unix
// socket address, and a function that ends its validity.
func (p *Place) address(name string) (string, func(), error) {
	path := filepath.Join(p.dir, name)
	if len(path) <= maxPath {
		return path, func() {}, nil
	}
	fd, err := unix.Open(p.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	dir := "/proc/self/fd/" + strconv.Itoa(fd)
	path = dir + "/" + name
	if len(path) > maxPath {
		err = fmt.Errorf("%w: no CSI driver name this long is valid", unix.ENAMETOOLONG)
	} else if unix.Access(dir, unix.F_OK) != nil { // Else bind would say that the directory is gone.
		err = errors.New("the path is long, which takes a mounted /proc: mount the directory at a shorter path")
	}
	if err != nil {
		_ = unix.Close(fd)
		return "", nil, err
	}
	return path, func() { _ = unix.Close(fd) }, nil
}

// Publish puts s at the path, in one step.
//
// With the zero ID it does so only if nothing is there, else the error wraps
// ErrExists: of several who try at once one succeeds. Otherwise it replaces what
// is there if that is exactly over: if it is something else by now, or absent,
// the error wraps ErrChanged, and if it is no socket ErrNotSocket. The check and
// the rename are two adjacent system calls; what somebody puts there in between
// is replaced.
//
// After any error the temporary name is gone and nothing at the path was
// touched; s still accepts who had connected, close it. Publish at most once.
func (p *Place) Publish(s *Socket, over ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.place != p || s.temp == "" {
		return fmt.Errorf("publish %s: the socket was not bound here, or is published or closed", p.path)
	}
	err := p.publish(s.temp, over)
	if err != nil {
		s.dropTemp()
		return err
	}
	s.temp = ""
	// The rename moved ctime. If somebody has replaced us already, the inode is
	// enough: ours is pinned.
	if there, err := identify(p.path); err == nil && there.SameInode(s.id) {
		s.id = there
	}
	return nil
}

func (p *Place) publish(temp string, over ID) error {
	if over == (ID{}) {
		err := p.putIfAbsent(temp)
		if errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("publish %s: %w", p.path, ErrExists)
		}
		return p.explainPublish(err)
	}
	if err := p.judge(over); err != nil {
		return err
	}
	p.seams.at("judged")
	return p.explainPublish(retry(func() error { return unix.Rename(temp, p.path) }))
}

func (p *Place) explainPublish(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENOENT) {
		if goneErr := p.dirGone(); goneErr != nil {
			return goneErr
		}
		return fmt.Errorf("publish %s: the temporary name was removed, bind anew: %w", p.path, err)
	}
	return explain("publish", p.path, err)
}

// putIfAbsent gives temp the name path. Not all file systems know
// RENAME_NOREPLACE (NFS does not; rename(2)): there a link does the same.
func (p *Place) putIfAbsent(temp string) error {
	err := retry(func() error {
		if p.seams.noRename {
			return unix.EINVAL
		}
		return unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, p.path, unix.RENAME_NOREPLACE)
	})
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if err := retry(func() error { return unix.Link(temp, p.path) }); err != nil {
		return err
	}
	_ = unlink(temp) // If it stays it is a second name, and Sweep's once we are dead.
	return nil
}

// dropTemp unlinks the temporary name if it is still ours.
func (s *Socket) dropTemp() {
	if s.temp == "" {
		return
	}
	if there, err := identify(s.temp); err == nil && there.SameInode(s.id) {
		_ = unlink(s.temp)
	}
	s.temp = ""
}

// owns reports whether there is the inode s listens on.
func (s *Socket) owns(there ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !there.SameInode(s.id) {
		return false
	}
	s.id = there
	return true
}

// ID identifies the socket, with the time of change that Bind, Publish or
// Place.Mine saw last.
func (s *Socket) ID() ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Accept implements net.Listener.
func (s *Socket) Accept() (net.Conn, error) { return s.listener.Accept() }

// Addr implements net.Listener. It is the path, also before Publish.
func (s *Socket) Addr() net.Addr { return &net.UnixAddr{Name: s.place.path, Net: "unix"} }

// SyscallConn gives access to the listening descriptor without making it
// blocking, as os.File.Fd would for every process that shares it.
func (s *Socket) SyscallConn() (syscall.RawConn, error) { return s.listener.SyscallConn() }

// Close stops listening. What stands at the path stays there; a temporary name
// goes.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropTemp()
	s.closed = true
	return s.listener.Close()
}

func unlink(path string) error { return retry(func() error { return unix.Unlink(path) }) }

func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
