package registrar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/pkg/registration"
	"github.com/holdfast-csi/node-driver-registrar/pkg/regsocket"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	cfg := Config{CSIAddress: n.csiSocket(), Endpoint: "/host/csi.sock", RegistrationDir: n.regDir(), Timeout: time.Second, Version: "test"}
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error, 1)
	ended := make(chan struct{})
	go func() { done <- r.Run(ctx); close(ended) }()
	n.t.Cleanup(func() { cancel(); <-ended })
	return func() error { cancel(); return <-done }, done
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

func TestRegistersAndLeavesNothing(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	stop, _ := n.run(nil)
	eventually(t, "published", func() bool { return exists(n.path()) })
	info := n.kubelet(&registerapi.RegistrationStatus{PluginRegistered: true})
	if info.Type != registerapi.CSIPlugin || info.Name != "d.example.com" || info.Endpoint != "/host/csi.sock" || len(info.SupportedVersions) != 1 || info.SupportedVersions[0] != "1.0.0" {
		t.Errorf("kubelet is told %v", info)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(n.regDir())
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestEndsWhileItWaitsForTheDriver(t *testing.T) {
	for _, started := range []bool{false, true} { // no socket; a driver that does not know its name
		n := newNode(t)
		if started {
			n.startDriver("")
		}
		stop, _ := n.run(nil)
		if started {
			eventually(t, "asked twice", func() bool { return n.driver.calls.Load() > 1 })
		}
		before := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(before); took > time.Second {
			t.Errorf("took %v", took)
		}
	}
}

func TestWaitsForALateDriver(t *testing.T) {
	n := newNode(t)
	n.startDriver("")
	n.run(nil)
	eventually(t, "asked more than once", func() bool { return n.driver.calls.Load() > 2 })
	n.driver.is("d.example.com")
	eventually(t, "published", func() bool { return exists(n.path()) })
}

func TestDriverWait(t *testing.T) {
	n := newNode(t)
	_, result := n.run(func(c *Config) { c.DriverWait = 50 * time.Millisecond })
	err := <-result
	if err == nil || !strings.Contains(err.Error(), "--driver-wait=50ms") || !strings.Contains(err.Error(), n.csiSocket()) {
		t.Errorf("got %v", err)
	}
}

func TestAFileInTheWayStaysAndEndsTheRun(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	if err := os.WriteFile(n.path(), []byte("somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, result := n.run(nil)
	err := <-result
	if err == nil || !strings.Contains(err.Error(), n.path()) || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("got %v", err)
	}
	if b, err := os.ReadFile(n.path()); err != nil || string(b) != "somebody's" {
		t.Errorf("the file now has %q, %v", b, err)
	}
}

func TestALostDirectoryEndsTheRun(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	_, result := n.run(nil)
	eventually(t, "published", func() bool { return exists(n.path()) })
	if err := os.RemoveAll(n.regDir()); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("got %v", err)
	}
}

func TestAnnouncesAgainAfterARefusal(t *testing.T) {
	for name, result := range map[string]*registerapi.RegistrationStatus{
		"refused": {PluginRegistered: false, Error: "NodeGetInfo failed"}, "hung up": nil,
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.startDriver("d.example.com")
			n.run(nil)
			eventually(t, "published", func() bool { return exists(n.path()) })
			before, err := os.Lstat(n.path())
			if err != nil {
				t.Fatal(err)
			}
			n.kubelet(result)
			eventually(t, "announced again", func() bool {
				now, err := os.Lstat(n.path())
				return err == nil && !os.SameFile(before, now)
			})
		})
	}
}

// Without a lock the socket is served as usual, put back when somebody removes it,
// and never removed at the end: who else is there cannot be known.
func TestWithoutALockNothingIsRemoved(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	if err := os.Mkdir(n.lock(), 0o700); err != nil {
		t.Fatal(err)
	}
	stop, _ := n.run(nil)
	eventually(t, "published", func() bool { return exists(n.path()) })
	if err := os.Remove(n.path()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "put back", func() bool { return exists(n.path()) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if !exists(n.path()) || !exists(n.lock()) {
		t.Error("something was removed")
	}
}

// The newcomer takes over, the elder stands by; when the newcomer ends, the elder
// takes the path back. A dial in between is always answered.
func TestOverlap(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	stopElder, _ := n.run(nil)
	eventually(t, "published", func() bool { return exists(n.path()) })
	elder := n.acceptor()
	stopNewcomer, _ := n.run(nil)
	eventually(t, "the newcomer accepts", func() bool { a := n.acceptor(); return a != "" && a != elder })
	if err := stopNewcomer(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the elder accepts again", func() bool { return n.acceptor() == elder })
	if err := stopElder(); err != nil {
		t.Fatal(err)
	}
	if exists(n.path()) || exists(n.lock()) {
		t.Error("the last one left something behind")
	}
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

func TestHealthz(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.run(func(c *Config) { c.HTTPEndpoint = address })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	code := func() int {
		res, err := client.Get("http://" + address + "/healthz")
		if err != nil {
			return 0
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	eventually(t, "404 before the driver has answered", func() bool { return code() == http.StatusNotFound })
	n.startDriver("d.example.com")
	eventually(t, "200 when the socket is there", func() bool { return code() == http.StatusOK })
}

func TestNewSaysWhatIsMissing(t *testing.T) {
	good := Config{CSIAddress: "/c", Endpoint: "/e", RegistrationDir: "/r", Timeout: time.Second}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for word, spoil := range map[string]func(*Config){
		"--kubelet-registration-path": func(c *Config) { c.Endpoint = "" },
		"absolute":                    func(c *Config) { c.RegistrationDir = "r" },
	} {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("want a word of %s, got %v", word, err)
		}
	}
}

func TestToldSaysAThingOnceAndThenEverMoreRarely(t *testing.T) {
	var s told
	err := errors.New("why")
	if !s.news("a", err) || s.news("a", err) || !s.news("b", err) || s.news("b", err) {
		t.Error("a reason is said when it is new, and only then")
	}
	for range 3 {
		every := s.every
		s.at = s.at.Add(-every)
		if !s.news("b", err) || s.every != 2*every {
			t.Errorf("not said again after %v, or the next time is not twice as long: %v", every, s.every)
		}
	}
	if !s.over() || s.over() || s.last() != nil {
		t.Error("over says once that it is over")
	}
}

func TestRefusalsEndTheRunAfterAMinuteWithoutASuccess(t *testing.T) {
	p := newPatience()
	defer p.stop()
	refuse := registration.Call{Kind: registration.Refused, Message: "no"}
	p.hear(refuse)
	if p.exhausted() {
		t.Fatal("after one refusal")
	}
	p.refused = p.refused.Add(-refusalsFor)
	p.hear(registration.Call{Kind: registration.Confirmed})
	p.hear(refuse)
	if p.exhausted() {
		t.Fatal("although there was a success meanwhile")
	}
	p.refused = p.refused.Add(-refusalsFor)
	p.hear(refuse)
	if !p.exhausted() || !strings.Contains(p.verdict("/e").Error(), `"no"`) {
		t.Fatal("not after a minute, or without kubelet's words")
	}
}

func TestWatchHints(t *testing.T) {
	dir := t.TempDir()
	hints := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch(ctx, dir, []string{"x-reg.sock"}, func() { hints <- struct{}{} })
	}()
	<-hints // the watch is there
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x-reg.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-hints
	if err := os.Remove(filepath.Join(dir, "x-reg.sock")); err != nil {
		t.Fatal(err)
	}
	<-hints
	cancel()
	<-ended
	if concerns(filepath.Join(dir, "other"), dir, []string{"x-reg.sock"}) {
		t.Error("another driver's names are no news")
	}
}

// A hostPath that was removed and made anew on the host stays the removed one for
// the container: nothing can appear in it, so waiting would be for ever.
func TestALostDriverDirectoryEndsTheRun(t *testing.T) {
	n := newNode(t)
	below := filepath.Join(n.dir, "d")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(below)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	if err := os.Remove(below); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	gone := fmt.Sprintf("/proc/self/fd/%d/csi.sock", held.Fd()) // as a mount would
	_, result := n.run(func(c *Config) { c.CSIAddress = gone })
	if err := <-result; err == nil || !strings.Contains(err.Error(), "restart") {
		t.Errorf("got %v", err)
	}
}

// A refusal long after the last one is a new story, and so is one after another
// instance has answered to kubelet in between.
func TestALateRefusalIsANewStory(t *testing.T) {
	refuse := registration.Call{Kind: registration.Refused, Message: "no"}
	p := newPatience()
	defer p.stop()
	p.hear(refuse)
	p.backOff()
	p.refused, p.last = p.refused.Add(-2*refusalsEnd), p.last.Add(-2*refusalsEnd)
	p.hear(refuse)
	if p.exhausted() || p.wait != firstBackOff || p.n != 1 {
		t.Errorf("a refusal long ago still counts: %+v", p)
	}
	p.refused = p.refused.Add(-refusalsFor)
	p.forget()
	p.hear(refuse)
	if p.exhausted() {
		t.Error("a refusal from before another instance answered still counts")
	}
}

func TestWordsForMetadataAreMadeToFit(t *testing.T) {
	if got := printable("nöde\n" + strings.Repeat("x", 500)); !strings.HasPrefix(got, "n?de?xxx") || len(got) > 256 {
		t.Errorf("got %q", got)
	}
	n := newNode(t)
	n.startDriver("d.example.com")
	n.run(func(c *Config) { c.Version = "1.0-ü" })
	eventually(t, "published", func() bool { return n.acceptor() != "" })
}

func TestABadHTTPAddressDoesNotStopRegistration(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	n.run(func(c *Config) { c.HTTPEndpoint = "8080" })
	eventually(t, "published", func() bool { return exists(n.path()) })
}

// What cannot even be asked who it is, is taken over at the start, and only then.
func TestASocketOfAnotherKindIsReplacedAtTheStart(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: n.path(), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	defer func() { _ = l.Close() }()
	n.run(nil)
	eventually(t, "published over it", func() bool { return n.acceptor() != "" })
}

// A publication that fails is tried again with a back-off of its own: a driver that
// answers each time must not make it a busy loop.
func TestAFailingPublicationBacksOff(t *testing.T) {
	w := &worker{}
	w.retry = &w.publishWait
	first := w.retry.Next()
	w.driverWait.Reset() // as each answer of the driver does
	if second := w.retry.Next(); second <= first {
		t.Errorf("waits %v and then %v", first, second)
	}
}

// A connection that is held makes the end of a peer known at once, and is not made
// anew for each look.
func TestALookAtAHeldPeerDialsRarely(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	stop, _ := n.run(nil)
	eventually(t, "published", func() bool { return n.acceptor() != "" })
	dial := func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", n.path())
	}
	peer, err := registration.Ask(t.Context(), dial, true)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	id := regsocket.ID{Ino: 1}
	ctx, cancel := context.WithTimeout(t.Context(), patienceOfTests)
	defer cancel()
	h := &heldPeer{Peer: peer, id: id, dialed: time.Now()}
	if !h.answers(ctx, id) {
		t.Error("a held connection that answers is not enough")
	}
	if h.answers(ctx, regsocket.ID{Ino: 2}) {
		t.Error("it answers for another socket")
	}
	old := *h
	old.dialed = time.Now().Add(-redialEvery)
	if old.answers(ctx, id) {
		t.Error("it is never dialled anew")
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	<-peer.Gone()
	if h.answers(ctx, id) {
		t.Error("it answers after the end")
	}
	if (*heldPeer)(nil).answers(ctx, id) {
		t.Error("nobody answers")
	}
}
