package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// reachTimeout is how long one attempt to reach a driver may take.
const reachTimeout = time.Second

// reach asks the driver at an endpoint one thing, as kubelet does: a connection of
// its own, and no second try. It gives the process that listens there, 0 when nobody
// could be connected to.
func reach(path string) (pid int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), reachTimeout)
	defer cancel()
	var listener atomic.Int64
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableRetry(), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
			if err == nil {
				if cred, err := credentialsOf(c); err == nil {
					listener.Store(int64(cred.Pid))
				}
			}
			return c, err
		}))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_, err = csi.NewIdentityClient(conn).Probe(ctx, &csi.ProbeRequest{})
	return int(listener.Load()), err
}

// Announced is the endpoint that kubelet last registered the driver with, empty if it
// never did.
func (pl *Plugin) Announced() string {
	calls := pl.Calls("register", time.Time{})
	for _, c := range slices.Backward(calls) {
		if c.Error == "" {
			return c.Endpoint
		}
	}
	return ""
}

// Reaches reports whether this driver answers at an endpoint.
func (pl *Plugin) Reaches(endpoint string, driver *Proc) bool {
	pid, err := reach(endpoint)
	return err == nil && pid == driver.PID()
}

// AwaitReached waits until one of these drivers answers at an endpoint.
func (pl *Plugin) AwaitReached(endpoint string, within time.Duration, drivers ...*Proc) {
	pl.node.tb.Helper()
	var pid int
	var err error
	if !pl.node.Try(within, func() bool {
		pid, err = reach(endpoint)
		return err == nil && slices.ContainsFunc(drivers, func(d *Proc) bool { return d.PID() == pid })
	}) {
		pl.node.Fatalf("waited %v in vain for %s to answer at %s; last seen: pid %d, error %v", within, procNames(drivers), endpoint, pid, err)
	}
}

func procNames(procs []*Proc) []string {
	var names []string
	for _, p := range procs {
		names = append(names, p.Name)
	}
	return names
}

// AwaitNamed waits until csi.sock's inode has a second name in the driver's directory,
// so that whoever removes csi.sock does not take the last one.
func (pl *Plugin) AwaitNamed(within time.Duration) {
	pl.node.tb.Helper()
	pl.node.Await("a second name of "+pl.Socket, within, func() bool {
		socket, err := os.Lstat(pl.Socket)
		if err != nil {
			return false
		}
		for _, name := range pl.Listing() {
			info, err := os.Lstat(filepath.Join(pl.Dir, name))
			if err == nil && name != filepath.Base(pl.Socket) && os.SameFile(info, socket) {
				return true
			}
		}
		return false
	})
}

// Listing is what stands in the driver's directory, by name.
func (pl *Plugin) Listing() []string { return pl.list(pl.Dir) }

// ListRegistry is what stands in the registration directory, by name.
func (pl *Plugin) ListRegistry() []string { return pl.list(pl.node.Registry) }

func (pl *Plugin) list(dir string) []string {
	pl.node.tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		pl.node.Fatalf("list %s: %v", dir, err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// DirTrouble says what of ours is in the driver's directory besides the symlink and
// sockets at which a driver answers; or that the symlink leads to none although there
// is one. (csi.sock is the driver's, dead or not.) Empty means that all is well.
func (pl *Plugin) DirTrouble() string {
	pl.node.tb.Helper()
	answers := false
	for _, name := range pl.Listing() {
		path := filepath.Join(pl.Dir, name)
		if path == pl.Endpoint {
			continue
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Type() != os.ModeSocket {
			return fmt.Sprintf("%s is left, no socket: %v", name, err)
		}
		_, err = reach(path)
		if err != nil && path != pl.Socket {
			return fmt.Sprintf("%s is left, where nobody answers: %v", name, err)
		}
		answers = answers || err == nil
	}
	target, err := os.Readlink(pl.Endpoint)
	if err != nil {
		return fmt.Sprintf("the endpoint's own name: %v", err)
	}
	if _, err := reach(pl.Endpoint); err != nil && answers {
		return fmt.Sprintf("%s leads to %s, where nobody answers, and there are %q: %v", filepath.Base(pl.Endpoint), target, pl.Listing(), err)
	}
	return ""
}

// AssertDir checks that nothing but the symlink and what answers is in the driver's
// directory.
func (pl *Plugin) AssertDir() {
	pl.node.tb.Helper()
	if trouble := pl.DirTrouble(); trouble != "" {
		pl.node.Errorf("in the driver's directory: %s", trouble)
	}
}
