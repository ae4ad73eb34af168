package control

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxFiles is how many descriptors may come with one read. One is wanted; some
// more are closed; still more make the kernel say that it has dropped some.
const maxFiles = 4

// read delivers frames until the connection ends, and ends it.
func (c *Conn) read() {
	defer close(c.in)
	gone := false // Whether done is closed.
	for {
		m, err := receive(c.conn)
		if err != nil {
			_ = c.shut(err)
			break
		}
		if m.frame != nil {
			gone = c.deliver(m, gone)
		}
	}
	if !gone {
		close(c.done)
	}
}

// deliver waits until m is received or we end. Meanwhile it looks for the end of the
// peer, which reading would not find behind what it has not read; gone and its
// result say whether done is closed.
func (c *Conn) deliver(m message, gone bool) bool {
	select {
	case c.in <- m:
		return gone
	default:
	}
	poll := time.NewTicker(fullPoll)
	defer poll.Stop()
	for {
		select {
		case c.in <- m:
			return gone
		case <-c.closing:
			closeAll(m.file)
			return gone
		case <-poll.C:
			if !gone && hungUp(c.conn) {
				gone = true
				close(c.done)
			}
		}
	}
}

// hungUp reports whether the peer has ended, whatever is left to read.
func hungUp(conn *net.UnixConn) (yes bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, 0)
		yes = err == nil && n > 0
	})
	return yes
}

// receive reads one frame, and the descriptor if it is a Handover. Others are
// closed. The frame is nil if its kind is not known.
func receive(conn *net.UnixConn) (message, error) {
	r := &fileReader{conn: conn}
	frame, err := decode(r)
	if r.err != nil { // Rather than that the bytes seem to end.
		err = r.err
	}
	m := message{frame: frame}
	if _, ok := frame.(Handover); ok && err == nil {
		if len(r.files) == 0 {
			err = fmt.Errorf("%w: a Handover without a descriptor", ErrRubbish)
		} else {
			m.file, r.files = r.files[0], r.files[1:]
		}
	}
	closeAll(r.files...)
	return m, err
}

// fileReader reads bytes, and keeps the descriptors that come with them. Since
// nobody reads beyond a frame, they are that frame's.
type fileReader struct {
	conn  *net.UnixConn
	files []*os.File
	err   error
}

func (r *fileReader) Read(b []byte) (int, error) {
	if r.err != nil || len(b) == 0 {
		return 0, r.err
	}
	var control [64]byte // For more than maxFiles, whatever the alignment.
	n, controlled, flags, _, err := r.conn.ReadMsgUnix(b, control[:unix.CmsgSpace(4*maxFiles)])
	if err != nil {
		if errors.Is(err, io.EOF) { // net wraps it, and ReadFull compares.
			err = io.EOF
		}
		return n, err
	}
	r.err = r.keep(control[:controlled])
	if r.err == nil && flags&unix.MSG_CTRUNC != 0 {
		r.err = fmt.Errorf("%w: more descriptors came than could be had", ErrRubbish)
	}
	return n, r.err
}

// keep adds the descriptors in a control message to the files.
func (r *fileReader) keep(control []byte) error {
	if len(control) == 0 {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRubbish, err)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // Not descriptors.
		}
		for _, fd := range fds {
			r.files = append(r.files, os.NewFile(uintptr(fd), "from another instance"))
		}
	}
	return nil
}
