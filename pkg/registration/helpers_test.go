package registration

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// patience bounds what must happen; it is not a measure of how fast.
const patience = 10 * time.Second

func dialer(path string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
}

func socketPath(t *testing.T) string { return filepath.Join(t.TempDir(), "reg.sock") }

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// registrar is a Server that serves at path; calls has what it reported.
type registrar struct {
	*Server
	path   string
	calls  chan Call
	served chan error
}

// start serves until the test ends. hook, if any, runs inside OnCall.
func start(t *testing.T, hook func(Call)) *registrar {
	t.Helper()
	r := &registrar{path: socketPath(t), calls: make(chan Call, 100), served: make(chan error, 1)}
	s, err := NewServer(Config{Info: testInfo, Self: testSelf, OnCall: func(c Call) error {
		if hook != nil {
			hook(c)
		}
		r.calls <- c
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.Server = s
	l := listen(t, r.path)
	go func() { r.served <- s.Serve(l) }()
	t.Cleanup(s.Stop)
	return r
}

// wants reads calls until those named have come, and compares.
func (r *registrar) wants(t *testing.T, want ...Call) {
	t.Helper()
	for i, w := range want {
		select {
		case got := <-r.calls:
			if got != w {
				t.Fatalf("call %d: got %+v, want %+v", i, got, w)
			}
		case <-time.After(patience):
			t.Fatalf("call %d: none came, want %+v", i, w)
		}
	}
}

// wantsNoMore sees to it that nothing more was reported: kubelet's next call,
// on a connection of its own, must come next.
func (r *registrar) wantsNoMore(t *testing.T) {
	t.Helper()
	k := dialKubelet(t, r.path)
	k.notify(t, true, "")
	select {
	case c := <-r.calls:
		if c.Kind != Confirmed {
			t.Fatalf("got %+v, want nothing but the marker", c)
		}
	case <-time.After(patience):
		t.Fatal("the marker did not come")
	}
	k.hangUp(t)
}

// kubelet is a client as kubelet is one.
type kubelet struct {
	registerapi.RegistrationClient
	cc    *grpc.ClientConn
	close func()
}

func dialKubelet(t *testing.T, path string) *kubelet {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+filepath.Base(path),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dialer(path)(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{RegistrationClient: registerapi.NewRegistrationClient(cc), cc: cc}
	k.close = sync.OnceFunc(func() { _ = cc.Close() })
	t.Cleanup(k.close)
	return k
}

func (k *kubelet) hangUp(t *testing.T) {
	t.Helper()
	k.close()
}

func (k *kubelet) getInfo(t *testing.T, md ...string) *registerapi.PluginInfo {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), md...), patience)
	defer cancel()
	i, err := k.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func (k *kubelet) notify(t *testing.T, registered bool, words string, md ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), md...), patience)
	defer cancel()
	st := &registerapi.RegistrationStatus{PluginRegistered: registered, Error: words}
	if _, err := k.NotifyRegistrationStatus(ctx, st); err != nil {
		t.Fatal(err)
	}
}

// eventually polls for what no event tells.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func awaitClosed(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("never: %s", what)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
