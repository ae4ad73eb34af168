package csidriver

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// patience bounds what must happen; it is not a measure of how fast.
const patience = 10 * time.Second

type identity struct {
	csi.UnimplementedIdentityServer
	name string
	err  error
	hang chan struct{} // if not nil, GetPluginInfo waits for its end
}

func (i identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	if i.hang != nil {
		<-i.hang
	}
	return &csi.GetPluginInfoResponse{Name: i.name}, i.err
}

func socketPath(t *testing.T) string { return filepath.Join(t.TempDir(), "csi.sock") }

func listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.UnixListener)
}

// serve serves i, or a server without the identity service.
func serve(t *testing.T, path string, i *identity) *grpc.Server {
	t.Helper()
	s := grpc.NewServer()
	if i != nil {
		csi.RegisterIdentityServer(s, i)
	}
	l := listen(t, path)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return s
}

func driver(t *testing.T, path string, timeout time.Duration) *Driver {
	t.Helper()
	d, err := New(Config{Address: path, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// wantTrouble checks the reason and some of the words: the path is always one
// of them.
func wantTrouble(t *testing.T, d *Driver, err error, want Reason, words ...string) {
	t.Helper()
	var tr *Trouble
	if !errors.As(err, &tr) {
		t.Fatalf("got %v, want a *Trouble", err)
	}
	if tr.Reason != want {
		t.Errorf("reason %v (%v), want %v", tr.Reason, err, want)
	}
	for _, w := range append(words, d.cfg.Address) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func TestName(t *testing.T) {
	path := socketPath(t)
	s := serve(t, path, &identity{name: "csi.example.com"})
	d := driver(t, path, patience)
	for range 3 {
		name, err := d.Name(t.Context())
		if err != nil || name != "csi.example.com" {
			t.Fatalf("Name = %q, %v", name, err)
		}
	}
	// No connection is kept: a driver that stops gracefully waits for none.
	// (The server may see the end a moment after we do.)
	done := make(chan struct{})
	go func() { s.GracefulStop(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("the driver waits for a connection of ours")
	}
}

// A driver sees one connection for one question, whatever the answer, and
// sees its end.
func TestOneConnectionEach(t *testing.T) {
	for name, do := range map[string]func(net.Conn){
		"hangs":    func(net.Conn) {},
		"hangs up": func(c net.Conn) { _ = c.Close() },
		"not HTTP/2": func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := socketPath(t)
			l := listen(t, path)
			var n atomic.Int32
			ended := make(chan error, 10)
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					n.Add(1)
					do(c)
					go func() {
						defer func() { _ = c.Close() }()
						_, err := io.Copy(io.Discard, c)
						ended <- err
					}()
				}
			}()
			if name, err := driver(t, path, 100*time.Millisecond).Name(t.Context()); err == nil {
				t.Errorf("Name = %q", name)
			}
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("the connection was left open")
			}
			if n.Load() != 1 {
				t.Errorf("%d connections, want 1", n.Load())
			}
		})
	}
}

func TestNoFile(t *testing.T) {
	d := driver(t, socketPath(t), patience)
	_, err := d.Name(t.Context())
	wantTrouble(t, d, err, NoFile, "no socket at", "no such file", "is the driver container running", "same volume")
}

func TestNobodyListens(t *testing.T) {
	path := socketPath(t)
	l := listen(t, path)
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	d := driver(t, path, patience)
	_, err := d.Name(t.Context())
	wantTrouble(t, d, err, NobodyListens, "nobody listens", "connection refused")
}

func TestNotASocket(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, what := range map[string]string{file: "a regular file", dir: "a directory"} {
		d := driver(t, path, patience)
		_, err := d.Name(t.Context())
		wantTrouble(t, d, err, NotASocket, what, "--csi-address")
	}
}

func TestNoAnswer(t *testing.T) {
	for name, serveHanging := range map[string]func(t *testing.T, path string){
		"never accepts": func(t *testing.T, path string) { listen(t, path) },
		"never answers": func(t *testing.T, path string) {
			hang := make(chan struct{})
			serve(t, path, &identity{hang: hang})
			t.Cleanup(func() { close(hang) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := socketPath(t)
			serveHanging(t, path)
			d := driver(t, path, 100*time.Millisecond)
			begin := time.Now()
			_, err := d.Name(t.Context())
			wantTrouble(t, d, err, NoAnswer, "no answer", "100ms", "may hang")
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestHungUp(t *testing.T) {
	path := socketPath(t)
	l := listen(t, path)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	d := driver(t, path, patience)
	begin := time.Now()
	_, err := d.Name(t.Context())
	wantTrouble(t, d, err, HungUp, "closed the connection", "starting or stopping")
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("it took %v, though the driver hung up at once", took)
	}
}

func TestUnimplemented(t *testing.T) {
	path := socketPath(t)
	serve(t, path, nil)
	d := driver(t, path, patience)
	_, err := d.Name(t.Context())
	wantTrouble(t, d, err, Unimplemented, "no CSI identity service", "--csi-address")
}

func TestErrorAnswer(t *testing.T) {
	path := socketPath(t)
	serve(t, path, &identity{err: status.Error(codes.FailedPrecondition, "backend not ready")})
	d := driver(t, path, patience)
	_, err := d.Name(t.Context())
	wantTrouble(t, d, err, Other, "FailedPrecondition", "backend not ready")
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("%v does not wrap the status", err)
	}
}

// A socket that appears between the dial and the look at the file was absent.
func TestSocketThatAppears(t *testing.T) {
	path := socketPath(t)
	d := driver(t, path, patience)
	_, err := net.Dial("unix", path)
	listen(t, path)
	wantTrouble(t, d, d.dialTrouble(err), NoFile)
}

func TestLongAnswer(t *testing.T) {
	path := socketPath(t)
	serve(t, path, &identity{name: strings.Repeat("x", maxAnswer)})
	d := driver(t, path, patience)
	_, err := d.Name(t.Context())
	wantTrouble(t, d, err, Other, "ResourceExhausted")
}

// What the driver sees is like any call over a unix socket.
func TestWhatTheDriverSees(t *testing.T) {
	path := socketPath(t)
	var authority []string
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		authority = metadata.ValueFromIncomingContext(ctx, ":authority")
		_ = grpc.SetHeader(ctx, metadata.Pairs("x", strings.Repeat("x", maxHeaders)))
		return h(ctx, req)
	}))
	csi.RegisterIdentityServer(s, identity{name: "csi.example.com"})
	l := listen(t, path)
	go func() { _ = s.Serve(l) }()
	name, err := driver(t, path, patience).Name(t.Context())
	s.Stop()
	if err == nil {
		t.Errorf("Name = %q with metadata that is too long", name)
	}
	if !slices.Equal(authority, []string{"localhost"}) {
		t.Errorf("authority %q", authority)
	}
}

// A connection that grpc never took is closed as well.
func TestHangUpUntaken(t *testing.T) {
	a, b := net.Pipe()
	cc, err := channel(a)
	if err != nil {
		t.Fatal(err)
	}
	hangUp(cc, a)
	_ = b.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, b); err != nil {
		t.Error(err)
	}
}

// grpc wants another connection when it gives one up, which it may do before
// it closes that one.
func TestOnce(t *testing.T) {
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	dial := once(a)
	if c, err := dial(t.Context(), ""); c != a || err != nil {
		t.Errorf("first: %v, %v", c, err)
	}
	if c, err := dial(t.Context(), ""); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second: %v, %v", c, err)
	}
}

// Who gives up hears of that, and not of a trouble with the driver.
func TestCanceled(t *testing.T) {
	path := socketPath(t)
	l := listen(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		cancel()
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}()
	name, err := driver(t, path, time.Minute).Name(ctx)
	var tr *Trouble
	if !errors.Is(err, context.Canceled) || errors.As(err, &tr) {
		t.Errorf("Name = %q, %v, want context.Canceled", name, err)
	}
}

func TestNewValidates(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  Config
		want string
	}{
		"no address":  {Config{Timeout: 1}, "no socket address"},
		"NUL":         {Config{Address: "a\x00b", Timeout: 1}, "NUL"},
		"long":        {Config{Address: strings.Repeat("x", 108), Timeout: 1}, "108 bytes"},
		"no timeout":  {Config{Address: "a"}, "not above 0"},
		"107 is fine": {Config{Address: strings.Repeat("x", 107), Timeout: 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(tt.cfg)
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestBackoff(t *testing.T) {
	var b Backoff
	for round := range 2 {
		for i, want := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000, 1000} {
			if got := b.Next(); got != want*time.Millisecond {
				t.Errorf("round %d: wait %d is %v, want %v", round, i, got, want*time.Millisecond)
			}
		}
		b.Reset()
	}
}

func TestReasonString(t *testing.T) {
	seen := make(map[string]bool)
	for r := Other; r <= BadName; r++ {
		s := r.String()
		if seen[s] || strings.HasPrefix(s, "reason(") {
			t.Errorf("reason %d reads %q", uint8(r), s)
		}
		seen[s] = true
	}
	if got := Reason(99).String(); got != "reason(99)" {
		t.Errorf("got %q", got)
	}
}
