//go:build linux

package registrar

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/holdfast-csi/node-driver-registrar/pkg/endpoint"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// generation is one process of a driver: it replaces csi.sock when it starts, and
// removes it by name when it ends, as Go servers do.
type generation struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	n      *node
	id     string
	node   string // its node ID
	server *grpc.Server
	hangs  chan struct{} // answers nothing until this is closed
}

func (g *generation) GetPluginInfo(ctx context.Context, _ *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	if g.hangs != nil {
		select {
		case <-g.hangs:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &csi.GetPluginInfoResponse{Name: "d.example.com", VendorVersion: g.id}, nil
}

func (g *generation) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: g.node}, nil
}

func (n *node) generation(id string) *generation {
	n.t.Helper()
	g := &generation{n: n, id: id}
	g.start()
	return g
}

func (g *generation) start() {
	g.n.t.Helper()
	if err := os.Remove(g.n.csiSocket()); err != nil && !os.IsNotExist(err) {
		g.n.t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: g.n.csiSocket(), Net: "unix"})
	if err != nil {
		g.n.t.Fatal(err)
	}
	g.server = grpc.NewServer()
	csi.RegisterIdentityServer(g.server, g)
	csi.RegisterNodeServer(g.server, g)
	served := make(chan struct{})
	go func() { defer close(served); _ = g.server.Serve(l) }()
	g.n.t.Cleanup(func() { g.server.Stop(); <-served })
}

func (n *node) link() string { return filepath.Join(n.dir, ".csi.sock.ep") }

// reached is the driver that answers at the announced endpoint, or "".
func (n *node) reached() string {
	c, err := grpc.NewClient("unix:"+n.link(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Second)
	defer cancel()
	info, err := csi.NewIdentityClient(c).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	if err != nil {
		return ""
	}
	return info.GetVendorVersion()
}

func (n *node) keeps(c *Config) {
	c.KeepEndpoint, c.Endpoint = true, n.csiSocket()
}

func (n *node) dotFiles() (names []string) {
	n.t.Helper()
	entries, err := os.ReadDir(n.dir)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestTheEndpointLeadsToADriverThatAnswers(t *testing.T) {
	n := newNode(t)
	old := n.generation("old")
	stop, _ := n.run(n.keeps)
	eventually(t, "published", func() bool { return exists(n.path()) })
	if got := n.kubelet(&registerapi.RegistrationStatus{PluginRegistered: true}); got.GetEndpoint() != n.link() {
		t.Fatalf("kubelet is told %s", got.GetEndpoint())
	}
	eventually(t, "the endpoint leads to the old driver", func() bool { return n.reached() == "old" })
	eventually(t, "its inode has a second name", func() bool { return len(n.dotFiles()) == 2 })

	young := n.generation("new")
	eventually(t, "the endpoint leads to the new driver", func() bool { return n.reached() == "new" })
	eventually(t, "both inodes have a second name", func() bool { return len(n.dotFiles()) == 3 })
	old.server.Stop() // removes csi.sock, which is the new one's
	if exists(n.csiSocket()) {
		t.Fatal("the old driver has not removed its successor's socket: nothing is tested")
	}
	eventually(t, "the endpoint still leads to the new driver", func() bool { return n.reached() == "new" })
	eventually(t, "the old one's name is gone", func() bool { return len(n.dotFiles()) == 2 })

	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if n.reached() != "new" || exists(n.path()) {
		t.Error("the last registrar has left, and mounted volumes have lost their endpoint")
	}
	young.server.Stop()
	if got := n.dotFiles(); len(got) != 2 {
		t.Fatalf("want the symlink and the name that answered then, got %v", got)
	}
	n.generation("third")
	stop, _ = n.run(n.keeps)
	eventually(t, "the next registrar cleans up", func() bool { return n.reached() == "third" && len(n.dotFiles()) == 2 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// A registrar that starts when its driver has no csi.sock any more registers it.
func TestARegistrarStartsBesideADriverWithoutCSISocket(t *testing.T) {
	n := newNode(t)
	n.generation("alone")
	names, err := endpoint.NewNames(n.csiSocket())
	if err != nil {
		t.Fatal(err)
	}
	l, err := names.Read()
	if err != nil {
		t.Fatal(err)
	}
	if err := names.Pin(l.Socket); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(n.csiSocket()); err != nil {
		t.Fatal(err)
	}
	n.run(n.keeps)
	eventually(t, "registered, and the endpoint leads to it", func() bool { return exists(n.path()) && n.reached() == "alone" })
}

func TestNoNamesWithoutKeepEndpoint(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"keep-endpoint off": func(*Config) {},
		"strict":            func(c *Config) { c.Strict = true },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.generation("it")
			n.run(func(c *Config) { c.Endpoint = n.csiSocket(); change(c) })
			eventually(t, "published", func() bool { return exists(n.path()) })
			if got := n.kubelet(&registerapi.RegistrationStatus{PluginRegistered: true}); got.GetEndpoint() != n.csiSocket() {
				t.Errorf("kubelet is told %s", got.GetEndpoint())
			}
			if got := n.dotFiles(); got != nil {
				t.Errorf("in the driver's directory: %v", got)
			}
		})
	}
}

func TestAForeignFileAtTheSymlinksNameStays(t *testing.T) {
	n := newNode(t)
	n.generation("it")
	if err := os.WriteFile(n.link(), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.run(n.keeps)
	eventually(t, "published", func() bool { return exists(n.path()) })
	if got := n.kubelet(nil); got.GetEndpoint() != n.csiSocket() {
		t.Errorf("kubelet is told %s", got.GetEndpoint())
	}
	if got, err := os.ReadFile(n.link()); err != nil || string(got) != "mine" {
		t.Errorf("the file has changed: %q, %v", got, err)
	}
}

// When the symlink is replaced by somebody, kubelet is told the driver's own socket.
func TestTheSymlinkIsReplacedByAnother(t *testing.T) {
	n := newNode(t)
	n.generation("it")
	n.run(n.keeps)
	eventually(t, "published", func() bool { return exists(n.path()) })
	n.kubelet(&registerapi.RegistrationStatus{PluginRegistered: true})
	temp := filepath.Join(n.dir, "temp")
	if err := os.Symlink("/elsewhere", temp); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temp, n.link()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "kubelet is told anew", func() bool { return n.kubelet(nil).GetEndpoint() == n.csiSocket() })
	if to, err := os.Readlink(n.link()); err != nil || to != "/elsewhere" {
		t.Errorf("somebody else's symlink has changed: %s, %v", to, err)
	}
}

func TestKubeletCannotConnectToTheSymlink(t *testing.T) {
	refusal := func(words string) *registerapi.RegistrationStatus {
		return &registerapi.RegistrationStatus{Error: words}
	}
	n := newNode(t)
	n.generation("it")
	n.run(n.keeps)
	eventually(t, "published", func() bool { return exists(n.path()) })
	n.kubelet(refusal("rpc error: topology keys differ"))
	eventually(t, "announced again", func() bool { return n.kubelet(nil).GetEndpoint() == n.link() })
	n.kubelet(refusal(`connection error: desc = "transport: Error while dialing: dial unix ` + n.link() + `: connect: no such file or directory"`))
	eventually(t, "the driver's own socket is announced", func() bool { return n.kubelet(nil).GetEndpoint() == n.csiSocket() })
}

func TestAskPrefersTheNewestThatAnswers(t *testing.T) {
	n := newNode(t)
	r, err := New(Config{CSIAddress: n.csiSocket(), Endpoint: n.csiSocket(), RegistrationDir: n.regDir(), Timeout: patienceOfTests, KeepEndpoint: true})
	if err != nil {
		t.Fatal(err)
	}
	k := newKeeper(t.Context(), r)
	var ids []endpoint.ID
	hangs := make(chan struct{})
	defer close(hangs)
	for _, g := range []*generation{{n: n, id: "old"}, {n: n, id: "hung", hangs: hangs}, {n: n, id: "new"}} {
		g.start()
		l, err := k.names.Read()
		if err != nil {
			t.Fatal(err)
		}
		if err := k.names.Pin(l.Socket); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, l.Socket)
	}
	old, hung, young := ids[0], ids[1], ids[2]
	for _, test := range []struct{ ask, want []endpoint.ID }{
		{[]endpoint.ID{young, hung, old}, []endpoint.ID{young}},
		{[]endpoint.ID{hung, old}, []endpoint.ID{old}},
		{[]endpoint.ID{old, hung, {}, young}, []endpoint.ID{old}},
		{[]endpoint.ID{{}}, []endpoint.ID{{}}},
	} {
		if got := k.ask(t.Context(), test.ask); got != test.want[0] {
			t.Errorf("of %v: want %v, got %v", test.ask, test.want[0], got)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if got := k.ask(short, []endpoint.ID{hung}); got != (endpoint.ID{}) {
		t.Errorf("one that hangs has answered: %v", got)
	}
}

func TestTheDriversComingAndGoingIsSaid(t *testing.T) {
	var d driverWatch
	a, b := endpoint.ID{Ino: 1}, endpoint.ID{Ino: 2}
	in := func(id endpoint.ID, life endpoint.Life) endpoint.Inode {
		return endpoint.Inode{ID: id, Life: life, Heard: true}
	}
	for i, step := range []struct {
		now  endpoint.Inode
		want string
	}{
		{endpoint.Inode{}, ""},
		{in(a, endpoint.Listens), ""},
		{in(a, endpoint.Busy), ""},
		{in(a, endpoint.Refuses), "has ended"},
		{in(a, endpoint.Refuses), ""},
		{in(a, endpoint.Listens), "listens again"},
		{endpoint.Inode{}, "was removed"},
		{in(b, endpoint.Listens), "back, on a new socket"},
		{in(a, endpoint.Listens), "a new socket: it has restarted"},
		{in(a, endpoint.Unclear), ""},
	} {
		if got := d.sees(step.now); step.want == "" && got != "" || !strings.Contains(got, step.want) {
			t.Errorf("step %d: want %q, got %q", i, step.want, got)
		}
	}
}
