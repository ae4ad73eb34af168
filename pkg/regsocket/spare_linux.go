package regsocket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Spare is a copy of the descriptor of a listening registration socket, kept so
// that the socket outlives whoever accepts on it. It does not accept, takes no
// connection away from those who do, and is not woken by connections: connections
// that nobody accepts wait in the queue, and are lost only when the last copy in
// any process is closed. It pins the inode, as the listener itself does.
//
// Close it. All methods may be called concurrently.
type Spare struct {
	place *Place
	id    ID

	// A bare descriptor: an os.File would have the runtime's poller watch it, and
	// every standby would wake up with every connection.
	mu sync.RWMutex
	fd int // -1 once closed.
}

// Spare returns a copy of the descriptor that s listens on.
func (s *Socket) Spare() (*Spare, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, err := s.listener.SyscallConn()
	if err != nil {
		return nil, s.place.explainSpare(err)
	}
	return s.place.spare(conn, s.id)
}

// controller is what net and os have, and a Spare.
type controller interface {
	Control(func(fd uintptr)) error
}

func (p *Place) spare(of controller, id ID) (*Spare, error) {
	fd, err := duplicate(of)
	if err != nil {
		return nil, p.explainSpare(err)
	}
	return &Spare{place: p, id: id, fd: fd}, nil
}

// duplicate returns a copy that no child inherits. Whether it blocks belongs to
// what is copied, and all copies share that: it must never be changed back.
func duplicate(of controller) (fd int, err error) {
	controlErr := of.Control(func(old uintptr) {
		fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	if controlErr != nil {
		return -1, controlErr
	}
	return fd, err
}

// AdoptSpare makes a Spare of a descriptor that another instance sent, which
// says that it is the socket id. It believes only what it can see: that file is a
// listening unix stream socket which was bound under a temporary name of this
// driver. Which file it is cannot be asked of a descriptor: compare id with what
// Place.Stat says, and dial. In any case file is closed.
func (p *Place) AdoptSpare(file *os.File, id ID) (*Spare, error) {
	defer file.Close()
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, p.explainSpare(err)
	}
	sp, err := p.spare(conn, id)
	if err != nil {
		return nil, err
	}
	if err := sp.validate(); err != nil {
		_ = sp.Close()
		return nil, p.explainSpare(err)
	}
	return sp, nil
}

func (sp *Spare) validate() error {
	for _, want := range []struct {
		option, value int
		otherwise     string
	}{
		{unix.SO_DOMAIN, unix.AF_UNIX, "not a unix socket"},
		{unix.SO_TYPE, unix.SOCK_STREAM, "not a stream socket"},
		{unix.SO_ACCEPTCONN, 1, "not listening"},
	} {
		got, err := unix.GetsockoptInt(sp.fd, unix.SOL_SOCKET, want.option)
		if err != nil {
			return err
		}
		if got != want.value {
			return errors.New("the descriptor is " + want.otherwise)
		}
	}
	// The address is the name that it was bound under, whatever it is called since.
	address, err := unix.Getsockname(sp.fd)
	if err != nil {
		return err
	}
	if bound, ok := address.(*unix.SockaddrUnix); !ok || !sp.place.isTemp(filepath.Base(bound.Name)) {
		return errors.New("the descriptor is another socket, not a registration socket of this driver")
	}
	return unix.SetNonblock(sp.fd, true)
}

// ID identifies the socket, as it was known when the copy was made. The time of
// change may be another by now; device and inode are not.
func (sp *Spare) ID() ID { return sp.id }

// Listen returns a Socket that accepts on a copy of the spare, which stays. So
// does every other holder: several may accept at once. For Place.Mine it is as one
// that was bound here; Publish refuses it, since it has no temporary name.
func (sp *Spare) Listen() (*Socket, error) {
	fd, err := duplicate(sp)
	if err != nil {
		return nil, sp.place.explainSpare(err)
	}
	// Of a descriptor that does not block already, neither the File nor the listener
	// made of it changes that.
	file := os.NewFile(uintptr(fd), sp.place.path)
	defer file.Close() // The listener has a copy.
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, sp.place.explainSpare(err)
	}
	return &Socket{place: sp.place, listener: listener.(*net.UnixListener), id: sp.id}, nil
}

// Control calls f with the descriptor, which is valid until f returns. F must not
// block, nor close the spare. After Close the error wraps net.ErrClosed.
func (sp *Spare) Control(f func(fd uintptr)) error {
	sp.mu.RLock()
	defer sp.mu.RUnlock()
	if sp.fd < 0 {
		return net.ErrClosed
	}
	f(uintptr(sp.fd))
	return nil
}

// Close closes this copy, and nothing else: other holders go on.
func (sp *Spare) Close() error {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	if sp.fd < 0 {
		return net.ErrClosed
	}
	fd := sp.fd
	sp.fd = -1
	return unix.Close(fd)
}

func (p *Place) explainSpare(err error) error {
	return fmt.Errorf("share the registration socket %s: %w", p.path, err)
}
