package regsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
)

// Dialed is what an attempt to connect says about a socket. None of them proves
// that somebody works behind it.
type Dialed uint8

const (
	// Other is an error that says nothing about who listens.
	Other Dialed = iota
	// Connected is no error.
	Connected
	// Refused means that nobody listens: whoever bound the socket has ended, or
	// does not listen yet. What is not a socket refuses too: look first.
	Refused
	// Absent means that nothing stands at the path.
	Absent
	// Busy means that somebody listens who does not accept: the backlog is full,
	// or the time was up.
	Busy
	// Denied means that we may not connect.
	Denied
)

// String is for logs.
func (d Dialed) String() string {
	switch d {
	case Connected:
		return "connected"
	case Refused:
		return "refused"
	case Absent:
		return "absent"
	case Busy:
		return "busy"
	case Denied:
		return "denied"
	case Other:
	}
	return "other"
}

// Dial connects once to the socket at the path, for as long as ctx lasts. The
// error wraps the errno. Links are followed, as the kernel does.
func (p *Place) Dial(ctx context.Context) (net.Conn, error) {
	return dial(ctx, p.path)
}

func dial(ctx context.Context, path string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to the registration socket: %w", err)
	}
	return conn, nil
}

// ClassifyDial says what the error of Dial means.
func ClassifyDial(err error) Dialed {
	switch {
	case err == nil:
		return Connected
	case errors.Is(err, errRefused):
		return Refused
	case errors.Is(err, fs.ErrNotExist):
		return Absent
	case errors.Is(err, errBusy), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return Busy
	case errors.Is(err, fs.ErrPermission), errors.Is(err, errDenied):
		return Denied
	}
	return Other
}
