package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// backlog is how many may wait to be accepted; for more a dial is EAGAIN.
	backlog = 128
	// maxConns is how many connections a Listener has at once. One more is closed.
	maxConns = 64
	// helloWithin is how long a dialer may take for its first frame.
	helloWithin = time.Second
	// acceptPause is how long accept rests after an error, as when the process has
	// too many files open.
	acceptPause = 100 * time.Millisecond
)

// Listener accepts connections of other instances at this instance's control
// socket. All methods may be called concurrently.
type Listener struct {
	name, path string
	id         fileID
	listener   *net.UnixListener

	life    context.Context // Done once Close begins.
	end     context.CancelFunc
	close   sync.Once
	running sync.WaitGroup
	slots   chan struct{} // One for each connection that is not closed.
	greeted chan greeted  // Never full: as many as slots.
}

// greeted is a connection whose first frame has come.
type greeted struct {
	conn  *Conn
	hello Hello
}

// Listen makes this process's control socket and accepts there until Close. pid is
// os.Getpid(), which tells it from others in its mount namespace. What
// a process of the same name has left is replaced, if nobody listens on it, which
// takes 100 ms to know. The error wraps ErrInUse, ErrNotSocket, or that of the
// system call; nothing of ours is left then.
func (p *Place) Listen(pid int) (*Listener, error) {
	name, err := p.ownName(pid)
	if err != nil {
		return nil, fmt.Errorf("listen for other instances: %w", err)
	}
	return p.listen(name)
}

func (p *Place) listen(name string) (*Listener, error) {
	l, err := p.bind(name)
	if errors.Is(err, unix.EADDRINUSE) {
		if _, err = identify(p.path(name)); err == nil {
			_, err = p.sweep(context.Background(), []string{name})
		}
		if err == nil {
			l, err = p.bind(name)
		}
		if errors.Is(err, unix.EADDRINUSE) {
			err = ErrInUse
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", p.path(name), err)
	}
	l.running.Go(l.accept)
	return l, nil
}

// bind binds, sets the mode, and only then listens: nobody can connect before.
// The umask is left alone, because it is the whole process's.
func (p *Place) bind(name string) (*Listener, error) {
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
	l := &Listener{
		name: name, path: p.path(name),
		slots: make(chan struct{}, maxConns), greeted: make(chan greeted, maxConns),
	}
	if l.id, err = identify(l.path); err != nil {
		return nil, err // Not ours any more.
	}
	p.at("bound")
	if err := l.open(p, file, fd); err != nil {
		l.unlink()
		return nil, err
	}
	l.life, l.end = context.WithCancel(context.Background())
	return l, nil
}

func (l *Listener) open(p *Place, file *os.File, fd int) error {
	if err := os.Chmod(l.path, 0o600); err != nil {
		return err
	}
	p.at("private")
	if err := unix.Listen(fd, backlog); err != nil {
		return err
	}
	// If we were frozen before this, somebody may have taken the name for dead.
	if there, err := identify(l.path); err != nil || !there.sameInode(l.id) {
		return errors.New("somebody took its name away, listen anew")
	}
	// A listener made from a descriptor does not unlink on Close, which it would do
	// by name, whoever's socket that is by then.
	listener, err := net.FileListener(file)
	if err != nil {
		return err
	}
	l.listener = listener.(*net.UnixListener)
	return nil
}

// unlink removes the name if it is still ours. The caller holds a descriptor of
// the socket, so its inode number is nobody else's.
func (l *Listener) unlink() {
	if there, err := identify(l.path); err == nil && there.sameInode(l.id) {
		_ = unlink(l.path)
	}
}

// Name is the name of the control socket in the registration directory, as Dial
// takes it.
func (l *Listener) Name() string { return l.name }

func (l *Listener) accept() {
	for {
		conn, err := l.listener.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			pause := time.NewTimer(acceptPause)
			select {
			case <-l.life.Done():
			case <-pause.C:
			}
			pause.Stop()
			continue
		case sameUser(conn) != nil:
			_ = conn.Close()
			continue
		}
		select {
		case l.slots <- struct{}{}:
			l.running.Go(func() { l.greet(newConn(conn, func() { <-l.slots })) })
		default:
			_ = conn.Close()
		}
	}
}

// greet waits for the first frame of a connection.
func (l *Listener) greet(c *Conn) {
	ctx, cancel := context.WithTimeout(l.life, helloWithin)
	defer cancel()
	frame, file, err := c.Receive(ctx)
	hello, ok := frame.(Hello)
	if err != nil || !ok {
		closeAll(file)
		c.Close()
		return
	}
	l.greeted <- greeted{c, hello}
}

// Accept waits for a connection whose first frame, Hello, has come, until ctx is
// done. The caller closes it, also when its peer has ended: until then it counts
// among the 64 that a Listener has at once. After Close the error wraps
// net.ErrClosed.
func (l *Listener) Accept(ctx context.Context) (*Conn, Hello, error) {
	select {
	case g := <-l.greeted:
		return g.conn, g.hello, nil
	case <-ctx.Done():
		return nil, Hello{}, fmt.Errorf("accept at %s: %w", l.path, ctx.Err())
	case <-l.life.Done():
		return nil, Hello{}, fmt.Errorf("accept at %s: %w", l.path, net.ErrClosed)
	}
}

// Close removes the control socket if it is still ours, stops accepting, and
// closes the connections that Accept has not returned. It waits for no peer. A
// second Close returns net.ErrClosed.
func (l *Listener) Close() error {
	err := net.ErrClosed
	l.close.Do(func() {
		l.end()
		l.unlink()
		err = l.listener.Close()
		l.running.Wait()
		for {
			select {
			case g := <-l.greeted:
				g.conn.Close()
			default:
				return
			}
		}
	})
	return err
}
