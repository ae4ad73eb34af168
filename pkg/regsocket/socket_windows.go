package regsocket

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/windows"
)

// Socket is a registration socket of ours. Before Publish it is a promise only:
// Accept waits. It is a net.Listener; all methods may be called concurrently.
type Socket struct {
	place *Place
	ready chan struct{} // Closed once listener is set.
	gone  chan struct{} // Closed by Close.

	mu       sync.Mutex
	listener *net.UnixListener
	id       ID
	tried    bool
	closed   bool
}

// Bind binds nothing yet, but makes sure that the directory is there.
func (p *Place) Bind() (*Socket, error) {
	if err := p.dirGone(); err != nil {
		return nil, err
	}
	return &Socket{place: p, ready: make(chan struct{}), gone: make(chan struct{})}, nil
}

// address returns the address of name in the directory.
func (p *Place) address(name string) (string, func(), error) {
	return filepath.Join(p.dir, name), func() {}, nil
}

// Publish binds s at the path.
//
// With the zero ID it does so only if nothing is there, else the error wraps
// ErrExists: of several who try at once one succeeds. Otherwise it first removes
// what is there if that is exactly over: if it is something else by now, or
// absent, the error wraps ErrChanged, and if it is no socket ErrNotSocket.
// Nobody is reached in between. Publish at most once.
func (p *Place) Publish(s *Socket, over ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.place != p || s.tried || s.closed {
		return fmt.Errorf("publish %s: the socket was not bound here, or is published or closed", p.path)
	}
	s.tried = true
	if over != (ID{}) {
		if err := p.judge(over); err != nil {
			return err
		}
		p.seams.at("judged")
		if err := unlink(p.path); err != nil {
			return explain("remove", p.path, err)
		}
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.path, Net: "unix"})
	if errors.Is(err, windows.WSAEADDRINUSE) {
		return fmt.Errorf("publish %s: %w", p.path, ErrExists)
	}
	if err != nil {
		if goneErr := p.dirGone(); goneErr != nil {
			return goneErr
		}
		return explain("publish", p.path, err)
	}
	listener.SetUnlinkOnClose(false) // It would unlink by name, whoever's it is.
	if s.id, err = identify(p.path); err != nil {
		_ = listener.Close()
		_ = unlink(p.path) // Bound by us a moment ago.
		return explain("look at", p.path, err)
	}
	s.listener = listener
	close(s.ready)
	return nil
}

// owns reports whether there is the file s listens on.
func (s *Socket) owns(there ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.listener == nil || !there.SameInode(s.id) {
		return false
	}
	s.id = there
	return true
}

// ID identifies the socket, with the time of change that Publish or Place.Mine
// saw last. It is zero before Publish.
func (s *Socket) ID() ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Accept implements net.Listener. It waits for Publish.
func (s *Socket) Accept() (net.Conn, error) {
	select {
	case <-s.ready:
		return s.listener.Accept()
	case <-s.gone:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener. It is the path, also before Publish.
func (s *Socket) Addr() net.Addr { return &net.UnixAddr{Name: s.place.path, Net: "unix"} }

// SyscallConn gives access to the listening handle; not before Publish.
func (s *Socket) SyscallConn() (syscall.RawConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return nil, errors.New("registration socket: not published yet")
	}
	return s.listener.SyscallConn()
}

// Close stops listening. What stands at the path stays there.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.closed = true
	close(s.gone)
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

func unlink(path string) error {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return err
	}
	return windows.DeleteFile(name)
}
