// Package csidriver asks the CSI driver behind a socket for its name, and says
// in words what is in the way when it cannot.
//
// # What it promises
//
// One call is one dial and one GetPluginInfo, within the timeout. No
// connection is kept: a driver that stops gracefully waits for its connections
// to end, and must not wait for us. It logs nothing and changes nothing.
//
// # What it does not know
//
// Whether the driver works beyond that one answer, and whether kubelet can
// reach it: kubelet's path may lead elsewhere.
//
// # Goroutines
//
// Driver.Name starts grpc's client goroutines and ends them before it returns.
package csidriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// maxAnswer bounds GetPluginInfo's answer, its manifest included, in bytes.
	maxAnswer = 256 << 10
	// maxHeaders bounds the answer's metadata, in bytes.
	maxHeaders = 16 << 10
	// maxPath is the longest unix socket path in bytes: sun_path less its
	// terminating NUL.
	maxPath = 107
)

// Config says where the driver is.
type Config struct {
	// Address is the path of the driver's socket in this container, without
	// a scheme.
	Address string
	// Timeout of one Name call, dial included; more than 0.
	Timeout time.Duration
}

// Driver is a CSI driver that may or may not be there. It may be used by
// several goroutines at once.
type Driver struct{ cfg Config }

// New validates cfg; it does not touch the socket.
func New(cfg Config) (*Driver, error) {
	switch {
	case cfg.Address == "":
		return nil, errors.New("csi driver: no socket address")
	case strings.ContainsRune(cfg.Address, 0):
		return nil, fmt.Errorf("csi driver: address %q contains a NUL byte", cfg.Address)
	case len(cfg.Address) > maxPath:
		return nil, fmt.Errorf("csi driver: address %s has %d bytes, but a unix socket path holds at most %d: mount the volume at a shorter path", cfg.Address, len(cfg.Address), maxPath)
	case cfg.Timeout <= 0:
		return nil, fmt.Errorf("csi driver: timeout %v is not above 0", cfg.Timeout)
	}
	return &Driver{cfg: cfg}, nil
}

// Name asks the driver for its name, once. The error is a *Trouble, or ctx's
// own when the caller gave up.
func (d *Driver) Name(ctx context.Context) (string, error) {
	return d.NameVia(ctx, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.cfg.Address)
	})
}

// NameVia is Name on a connection that dial makes, to a socket which the driver
// may have beside its address.
func (d *Driver) NameVia(ctx context.Context, dial func(context.Context) (net.Conn, error)) (string, error) {
	call, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	name, err := d.ask(call, dial)
	if err == nil {
		err = d.checkName(name)
	}
	if err == nil {
		return name, nil
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("ask the driver at %s: %w", d.cfg.Address, ctx.Err())
	}
	return "", err
}

// DirGone reports whether the directory of the driver's socket was removed below
// its mount, so that no socket can ever appear in it again.
func (d *Driver) DirGone() bool { return dirGone(filepath.Dir(d.cfg.Address)) }

func (d *Driver) ask(ctx context.Context, dial func(context.Context) (net.Conn, error)) (name string, err error) {
	err = d.call(ctx, dial, func(cc *grpc.ClientConn) (err error) {
		if name, err = rpc.GetDriverName(ctx, cc); err != nil {
			return d.callTrouble(err)
		}
		return nil
	})
	return name, err
}

// call dials, has do make its call, and hangs up.
func (d *Driver) call(ctx context.Context, dial func(context.Context) (net.Conn, error), do func(*grpc.ClientConn) error) error {
	raw, err := dial(ctx)
	if err != nil {
		return d.dialTrouble(err)
	}
	cc, err := channel(raw)
	if err != nil {
		_ = raw.Close()
		return d.trouble(Other, err, "ask the driver at %s: %v", d.cfg.Address, err)
	}
	defer hangUp(cc, raw)
	return do(cc)
}

// channel is a grpc channel over raw and nothing else.
func channel(raw net.Conn) (*grpc.ClientConn, error) {
	// passthrough: nothing is resolved, and with a dialer of ours grpc uses no
	// proxy. The name becomes the authority, which is localhost for unix
	// sockets; some servers refuse others.
	return grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(once(raw)),
		grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	)
}

// hangUp closes the channel and its connection.
func hangUp(cc *grpc.ClientConn, raw net.Conn) {
	_ = cc.Close()  // says goodbye, which cannot block: so little was written
	_ = raw.Close() // if grpc never took it
}

// once is a dialer that gives raw out once: grpc may want a second connection
// before the first is closed, after a GOAWAY for one.
func once(raw net.Conn) func(context.Context, string) (net.Conn, error) {
	var taken atomic.Bool
	return func(context.Context, string) (net.Conn, error) {
		if taken.Swap(true) {
			return nil, net.ErrClosed
		}
		return raw, nil
	}
}
