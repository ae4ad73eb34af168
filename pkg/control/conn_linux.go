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
	// sendWithin bounds Send when its ctx has no deadline.
	sendWithin = time.Second
	// queued is how many received frames wait for Receive.
	queued = 4
	// fullPoll is how often the end of the peer is looked for while that many wait.
	fullPoll = 20 * time.Millisecond
)

// Conn is a connection to another instance. All methods may be called
// concurrently; of several senders or receivers one comes after the other. Close
// it, also when the peer has ended.
type Conn struct {
	conn    *net.UnixConn
	release func() // Called once, by Close.
	sending chan struct{}
	in      chan message  // Closed when reading has ended.
	done    chan struct{} // Closed when the peer has ended, or we have.
	closing chan struct{} // Closed when we have.

	mu       sync.Mutex
	err      error // Why it ended, once it has.
	released bool
}

type message struct {
	frame Frame
	file  *os.File // nil except with Handover
}

func newConn(conn *net.UnixConn, release func()) *Conn {
	c := &Conn{
		conn: conn, release: release,
		sending: make(chan struct{}, 1),
		in:      make(chan message, queued),
		done:    make(chan struct{}),
		closing: make(chan struct{}),
	}
	go c.read()
	return c
}

// Send sends a frame, which can be any but Handover, until ctx is done, or for a
// second if ctx has no deadline. A peer that does not read holds it no longer than
// that.
//
// An error of a frame that cannot be sent by anybody (ErrTooLong) changes nothing.
// After any other the peer may have missed the frame, or got half of it, and the
// connection is ended; also if it was ctx that was done.
func (c *Conn) Send(ctx context.Context, f Frame) error {
	if _, ok := f.(Handover); ok {
		return errors.New("send to another instance: a Handover without a descriptor")
	}
	return c.send(ctx, f, nil)
}

// SendWith sends h and a copy of the descriptor that control gives, as
// syscall.RawConn and regsocket's Spare do; which stays the caller's. Else it is as
// Send. The descriptor can be on its way for ever, to a peer that is frozen, and
// as long the socket accepts connections.
func (c *Conn) SendWith(ctx context.Context, h Handover, control func(func(fd uintptr)) error) error {
	fd, err := duplicate(control)
	if err != nil {
		return fmt.Errorf("send a descriptor to another instance: %w", err)
	}
	defer unix.Close(fd)
	return c.send(ctx, h, unix.UnixRights(fd))
}

func duplicate(control func(func(fd uintptr)) error) (fd int, err error) {
	controlErr := control(func(old uintptr) {
		fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	if controlErr != nil {
		return -1, controlErr
	}
	return fd, err
}

func (c *Conn) send(ctx context.Context, f Frame, rights []byte) error {
	frame, err := encode(f)
	if err == nil {
		err = c.write(ctx, frame, rights)
	}
	if err != nil {
		return fmt.Errorf("send %T to another instance: %w", f, err)
	}
	return nil
}

func (c *Conn) write(ctx context.Context, frame, rights []byte) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, sendWithin)
		defer cancel()
	}
	select {
	case c.sending <- struct{}{}:
		defer func() { <-c.sending }()
	case <-ctx.Done():
		return c.shut(ctx.Err())
	case <-c.closing:
		return c.shut(net.ErrClosed)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetWriteDeadline(time.Unix(1, 0)) })
	n, _, err := c.conn.WriteMsgUnix(frame, rights, nil)
	if err == nil && n < len(frame) { // The descriptor went with the first byte.
		_, err = c.conn.Write(frame[n:])
	}
	switch {
	case !stop(): // Interrupted, or the next one would be.
		return c.shut(ctx.Err())
	case err == nil:
		return nil
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return err // The peer has ended, so reading will, after what it said last.
	}
	return c.shut(err)
}

// shut ends the connection, and returns the first reason that was given.
func (c *Conn) shut(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.closing)
		_ = c.conn.Close()
	}
	return c.err
}

// Receive waits for the next frame of a kind that is known here, until ctx is
// done. With Handover, and only with it, comes a descriptor, which is the caller's
// to close.
//
// After an error of ctx the connection goes on. Any other is its end: it wraps
// ErrVersion, ErrTooLong, ErrRubbish, net.ErrClosed after Close, the error of a
// failed Send, or, when the peer has ended, io.EOF, io.ErrUnexpectedEOF or the
// errno. Frames that came before are returned first.
func (c *Conn) Receive(ctx context.Context) (Frame, *os.File, error) {
	select {
	case m, ok := <-c.in:
		return c.received(m, ok)
	default:
	}
	select {
	case m, ok := <-c.in:
		return c.received(m, ok)
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("hear from another instance: %w", ctx.Err())
	}
}

func (c *Conn) received(m message, ok bool) (Frame, *os.File, error) {
	if ok {
		return m.frame, m.file, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return nil, nil, fmt.Errorf("hear from another instance: %w", c.err)
}

// Done is closed when the connection has ended, whoever ended it, whether or not
// anybody receives. Frames that came before can still be received.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close ends the connection and drops what was not received. It waits for nobody,
// and may be called more than once.
func (c *Conn) Close() {
	_ = c.shut(net.ErrClosed)
	for m := range c.in {
		closeAll(m.file)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.released {
		c.released = true
		c.release()
	}
}

// closeAll closes files, of which some may be nil.
func closeAll(files ...*os.File) {
	for _, file := range files {
		if file != nil {
			_ = file.Close()
		}
	}
}
