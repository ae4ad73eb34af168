//go:build !linux

package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Second names and symlinks to sockets are for Linux only. What can fail does.

func supported() error {
	return fmt.Errorf("a name for the endpoint: %w on this system: announce the plain path", errors.ErrUnsupported)
}

// Read is not supported.
func (n *Names) Read() (Listing, error) { return Listing{}, supported() }

// Pin is not supported.
func (n *Names) Pin(ID) error { return supported() }

// Turn is not supported.
func (n *Names) Turn(Target, Target) error { return supported() }

// Remove is not supported.
func (n *Names) Remove(ID) error { return supported() }

// Sweep is not supported.
func (n *Names) Sweep(time.Duration) ([]string, error) { return nil, supported() }

// Dial is not supported.
func (n *Names) Dial(context.Context, ID) (net.Conn, error) { return nil, supported() }

// Probe knows nothing.
func (n *Names) Probe(ID) Life { return Unclear }
