// Command driver is a CSI driver for tests and demonstrations: the identity
// service, and a node service with ephemeral inline volumes, which it mounts
// (Linux only). Flags make it late, slow, forgetful or rude, so that one can see
// what a registrar does then.
//
// It prints "serving PATH" once its socket accepts, and a line for each call but
// Probe, which tests do by the thousand.
// At SIGTERM or SIGINT it stops gracefully, as drivers do: it waits for the
// connections which it has, without a limit of its own.
//
// An inline volume with the attribute crash: "true" ends it at once, as a crash
// does. With --hold, --await, --list, --kill, --term, --hammer or --watch it is no
// driver but something else that a test needs, see pod: one image does for all.
//
// Goroutines: grpc's, and the one that waits for the signal; all end before the
// process does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type config struct {
	endpoint, name, nodeID, version string
	startDelay, bindDelay           time.Duration
	stopDelay                       time.Duration
	identityDelay, nodeInfoDelay    time.Duration
	nodeInfoFailures                int64
	nodeInfoUntil                   string
	nodeInfoWhile                   string
	nodeInfoSlowFails               bool
	graceful, removeFirst, unlink   bool
	refuseLive                      bool
	mount, data                     string
}

func main() {
	var c config
	flag.StringVar(&c.endpoint, "endpoint", "/csi/csi.sock", "path of the socket to serve on, with or without unix://")
	flag.StringVar(&c.name, "name", "hold.example.com", "driver name")
	flag.StringVar(&c.nodeID, "node-id", "node", "node ID that NodeGetInfo gives")
	flag.StringVar(&c.version, "vendor-version", "0.0.0", "version that GetPluginInfo gives")
	flag.DurationVar(&c.startDelay, "start-delay", 0, "wait this long before the socket is bound")
	flag.DurationVar(&c.bindDelay, "bind-delay", 0, "wait this long between the removal of the endpoint and its binding")
	flag.DurationVar(&c.stopDelay, "stop-delay", 0, "go on serving for this long after SIGTERM")
	flag.DurationVar(&c.identityDelay, "identity-delay", 0, "answer GetPluginInfo, GetPluginCapabilities and Probe only after this long")
	flag.DurationVar(&c.nodeInfoDelay, "node-info-delay", 0, "answer NodeGetInfo only after this long")
	flag.StringVar(&c.nodeInfoWhile, "node-info-delay-while", "", "the delay is only for NodeGetInfo that comes while this file exists; a line says when it begins")
	flag.BoolVar(&c.nodeInfoSlowFails, "node-info-slow-fails", false, "fail NodeGetInfo after its delay")
	flag.Int64Var(&c.nodeInfoFailures, "node-info-failures", 0, "fail the first N NodeGetInfo")
	flag.StringVar(&c.nodeInfoUntil, "node-info-until", "", "fail NodeGetInfo until this file exists")
	flag.BoolVar(&c.graceful, "graceful", true, "wait for calls and connections at the end")
	flag.BoolVar(&c.removeFirst, "remove-first", true, "remove what is at the endpoint before binding")
	flag.BoolVar(&c.refuseLive, "refuse-live", false, "end with an error if somebody listens at the endpoint before it is removed")
	flag.BoolVar(&c.unlink, "unlink", true, "remove the endpoint by name at the end")
	flag.StringVar(&c.mount, "mount", "tmpfs", "what a volume is: tmpfs, or bind, a directory below --data")
	flag.StringVar(&c.data, "data", "", "directory for --mount=bind")
	var p pod
	flag.StringVar(&p.hold, "hold", "", "be a pod instead: see that the driver's file is in this directory, and wait for SIGTERM")
	flag.StringVar(&p.await, "await", "", "be a hook instead: wait until somebody listens at this socket, and end")
	flag.StringVar(&p.list, "list", "", "be a pod instead: print the paths of what is in these directories, separated by commas, one a line, and end")
	flag.StringVar(&p.kill, "kill", "", "be a pod instead: SIGKILL each process whose command line has this, and end")
	flag.StringVar(&p.term, "term", "", "be a pod instead: the same with SIGTERM")
	flag.StringVar(&p.hammer, "hammer", "", "be a pod instead: ask the registrar at this socket again and again, until it dies, and end")
	flag.StringVar(&p.watch, "watch", "", "be a pod instead: print who accepts at these sockets, separated by commas, whenever it changes")
	flag.Parse()
	c.endpoint = strings.TrimPrefix(c.endpoint, "unix://")

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	do := p.role()
	if do == nil {
		do = c.run
	}
	if err := do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

// check finds flags that do not go together.
func (c config) check() error {
	switch {
	case c.mount != "tmpfs" && c.mount != "bind":
		return fmt.Errorf("--mount=%s is neither tmpfs nor bind", c.mount)
	case c.mount == "bind" && c.data == "":
		return errors.New("--mount=bind needs --data, the directory in which volumes are")
	}
	return nil
}

// run serves from the end of the start delay until ctx ends.
func (c config) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	if !pause(ctx, c.startDelay) {
		return nil
	}
	if c.refuseLive {
		if conn, err := net.Dial("unix", c.endpoint); err == nil {
			conn.Close()
			return fmt.Errorf("somebody listens at %s already", c.endpoint)
		}
	}
	if c.removeFirst {
		if err := os.Remove(c.endpoint); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if !pause(ctx, c.bindDelay) {
		return nil
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.endpoint, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(c.unlink)

	server := grpc.NewServer(grpc.UnaryInterceptor(logged))
	csi.RegisterIdentityServer(server, &identity{config: c})
	csi.RegisterNodeServer(server, &node{config: c})
	fmt.Println("serving", c.endpoint)

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		pause(context.WithoutCancel(ctx), c.stopDelay)
		if c.graceful {
			server.GracefulStop()
		} else {
			server.Stop()
		}
	}()
	err = server.Serve(listener)
	if err == nil {
		<-stopped
	}
	return err
}

func logged(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	began := time.Now()
	answer, err := next(ctx, req)
	if info.FullMethod == csi.Identity_Probe_FullMethodName {
		return answer, err
	}
	fmt.Println(info.FullMethod, time.Since(began).Round(time.Millisecond), status.Code(err))
	return answer, err
}

// pause waits; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

type identity struct {
	csi.UnimplementedIdentityServer
	config
}

func (i *identity) GetPluginInfo(ctx context.Context, _ *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	pause(ctx, i.identityDelay)
	return &csi.GetPluginInfoResponse{Name: i.name, VendorVersion: i.version}, nil
}

func (i *identity) GetPluginCapabilities(ctx context.Context, _ *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	pause(ctx, i.identityDelay)
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (i *identity) Probe(ctx context.Context, _ *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	pause(ctx, i.identityDelay)
	return &csi.ProbeResponse{}, nil
}

type node struct {
	csi.UnimplementedNodeServer
	config
	asked atomic.Int64 // NodeGetInfo calls so far
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	stats := &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_GET_VOLUME_STATS}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{
		{Type: &csi.NodeServiceCapability_Rpc{Rpc: stats}},
	}}, nil
}

func (n *node) NodeGetInfo(ctx context.Context, _ *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	asked := n.asked.Add(1)
	if n.slow() {
		fmt.Println("a slow answer begins")
		pause(ctx, n.nodeInfoDelay)
		if n.nodeInfoSlowFails {
			return nil, status.Error(codes.Unavailable, "node info is not known yet, it took too long")
		}
	}
	if asked <= n.nodeInfoFailures {
		return nil, status.Errorf(codes.Unavailable, "node info is not known yet (call %d, to fail: %d)", asked, n.nodeInfoFailures)
	}
	if n.nodeInfoUntil != "" {
		if _, err := os.Stat(n.nodeInfoUntil); err != nil {
			return nil, status.Errorf(codes.Unavailable, "node info is not known yet: %v", err)
		}
	}
	return &csi.NodeGetInfoResponse{NodeId: n.nodeID}, nil
}

// slow says whether a NodeGetInfo that comes now is answered late.
func (n *node) slow() bool {
	if n.nodeInfoDelay <= 0 || n.nodeInfoWhile == "" {
		return n.nodeInfoDelay > 0
	}
	_, err := os.Stat(n.nodeInfoWhile)
	return err == nil
}
