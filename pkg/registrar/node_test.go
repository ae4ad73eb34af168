package registrar

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/holdfast-csi/node-driver-registrar/pkg/registration"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// pids tells the registrars of this process apart.
var pids atomic.Int64

const patienceOfTests = 20 * time.Second

// driver is a CSI driver whose name and answers the test decides.
type driver struct {
	csi.UnimplementedIdentityServer
	name  atomic.Pointer[string]
	calls atomic.Int64
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	d.calls.Add(1)
	name := d.name.Load()
	if name == nil {
		return nil, status.Error(codes.Unavailable, "not yet")
	}
	return &csi.GetPluginInfoResponse{Name: *name}, nil
}

func (d *driver) is(name string) { d.name.Store(&name) }

// node is a directory layout with a driver in it.
type node struct {
	t      *testing.T
	dir    string
	driver *driver
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf") // t.TempDir is too long a name for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(filepath.Join(dir, "reg"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &node{t: t, dir: dir, driver: &driver{}}
}

func (n *node) csiSocket() string { return filepath.Join(n.dir, "csi.sock") }
func (n *node) regDir() string    { return filepath.Join(n.dir, "reg") }
func (n *node) path() string      { return filepath.Join(n.regDir(), "d.example.com-reg.sock") }
func (n *node) lock() string      { return filepath.Join(n.regDir(), ".d.example.com-reg.lease") }

func (n *node) startDriver(name string) {
	n.t.Helper()
	l, err := net.Listen("unix", n.csiSocket())
	if err != nil {
		n.t.Fatal(err)
	}
	s := grpc.NewServer()
	csi.RegisterIdentityServer(s, n.driver)
	if name != "" {
		n.driver.is(name)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	n.t.Cleanup(func() { s.Stop(); <-served })
}

// run starts a registrar, and returns how to end it and what Run returned.
func (n *node) run(change func(*Config)) (stop func() error, result <-chan error) {
	n.t.Helper()
	_, stop, result = n.begin(change)
	return stop, result
}

// begin is run, and gives the registrar too.
func (n *node) begin(change func(*Config)) (r *Registrar, stop func() error, result <-chan error) {
	n.t.Helper()
	cfg := Config{CSIAddress: n.csiSocket(), Endpoint: "/host/csi.sock", RegistrationDir: n.regDir(), Timeout: time.Second, Version: "test"}
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	r.pid = int(pids.Add(1))
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error, 1)
	ended := make(chan struct{})
	go func() { done <- r.Run(ctx); close(ended) }()
	n.t.Cleanup(func() { cancel(); <-ended })
	return r, func() error { cancel(); return <-done }, done
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patienceOfTests)
	every := time.NewTicker(2 * time.Millisecond)
	defer every.Stop()
	for !ok() {
		select {
		case <-every.C:
		case <-deadline:
			t.Fatalf("never came true: %s", what)
		}
	}
}

func exists(path string) bool { _, err := os.Lstat(path); return err == nil }

// kubelet calls as kubelet does: GetInfo, then the result, then it hangs up.
func (n *node) kubelet(result *registerapi.RegistrationStatus) *registerapi.PluginInfo {
	n.t.Helper()
	c, err := grpc.NewClient("unix:"+n.path(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(n.t.Context(), patienceOfTests)
	defer cancel()
	client := registerapi.NewRegistrationClient(c)
	info, err := client.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	if result != nil {
		if _, err := client.NotifyRegistrationStatus(ctx, result); err != nil {
			n.t.Fatal(err)
		}
	}
	return info
}

// acceptor is the instance that answers at the path, or "".
func (n *node) acceptor() string {
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Second)
	defer cancel()
	p, err := registration.Ask(ctx, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", n.path())
	}, false)
	if err != nil {
		return ""
	}
	defer p.Close()
	id, _ := p.Identity()
	return id.Instance
}
