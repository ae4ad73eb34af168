package control

import (
	"context"
	"errors"
	"os"
)

// Listener would accept connections of other instances.
type Listener struct{}

// Conn would be a connection to another instance.
type Conn struct{}

// Listen returns errors.ErrUnsupported.
func (p *Place) Listen(int) (*Listener, error) { return nil, errors.ErrUnsupported }

// Dial returns errors.ErrUnsupported.
func (p *Place) Dial(context.Context, string) (*Conn, error) { return nil, errors.ErrUnsupported }

// Names returns none.
func (p *Place) Names() ([]string, error) { return nil, nil }

// Sweep removes nothing.
func (p *Place) Sweep(context.Context) ([]string, error) { return nil, nil }

// Name returns nothing.
func (l *Listener) Name() string { return "" }

// Accept returns errors.ErrUnsupported.
func (l *Listener) Accept(context.Context) (*Conn, Hello, error) {
	return nil, Hello{}, errors.ErrUnsupported
}

// Close does nothing.
func (l *Listener) Close() error { return nil }

// Send returns errors.ErrUnsupported.
func (c *Conn) Send(context.Context, Frame) error { return errors.ErrUnsupported }

// SendWith returns errors.ErrUnsupported.
func (c *Conn) SendWith(context.Context, Handover, func(func(fd uintptr)) error) error {
	return errors.ErrUnsupported
}

// Receive returns errors.ErrUnsupported.
func (c *Conn) Receive(context.Context) (Frame, *os.File, error) {
	return nil, nil, errors.ErrUnsupported
}

// Done returns a channel that is never closed.
func (c *Conn) Done() <-chan struct{} { return nil }

// Close does nothing.
func (c *Conn) Close() {}
