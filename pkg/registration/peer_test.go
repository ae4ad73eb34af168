package registration

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestAskAnotherOfOurs(t *testing.T) {
	r := start(t, nil)
	p := must(Ask(t.Context(), dialer(r.path), false))
	defer p.Close()
	want := testInfo
	want.Versions = []string{"1.0.0"}
	if got := p.Info(); !got.Equal(want) {
		t.Errorf("Info = %+v, want %+v", got, want)
	}
	id, ours := p.Identity()
	if !ours || id != testSelf {
		t.Errorf("Identity = %+v, %v, want %+v", id, ours, testSelf)
	}
	if closed(p.Gone()) {
		t.Error("gone while open")
	}
	p.Close()
	if !closed(p.Gone()) {
		t.Error("not gone after Close")
	}
	p.Close() // once more does no harm
}

// foreign is a Registration service of another make.
type foreign struct {
	registerapi.UnimplementedRegistrationServer
	info *registerapi.PluginInfo
	err  error
}

func (f foreign) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return f.info, f.err
}

// serveForeign serves f, or no Registration service at all, and returns a path.
func serveForeign(t *testing.T, f *foreign) string {
	t.Helper()
	s := grpc.NewServer()
	if f != nil {
		registerapi.RegisterRegistrationServer(s, f)
	}
	path := socketPath(t)
	l := listen(t, path)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return path
}

func TestAskAnIncumbent(t *testing.T) {
	path := serveForeign(t, &foreign{info: &registerapi.PluginInfo{
		Type: "CSIPlugin", Name: "other.example.com", Endpoint: "/e", SupportedVersions: []string{"1.0.0"},
	}})
	p := must(Ask(t.Context(), dialer(path), true))
	defer p.Close()
	if id, ours := p.Identity(); ours {
		t.Errorf("an incumbent reads as ours: %+v", id)
	}
	if got, want := p.Info(), (Info{Driver: "other.example.com", Endpoint: "/e", Versions: []string{"1.0.0"}}); !got.Equal(want) {
		t.Errorf("Info = %+v, want %+v", got, want)
	}
}

func TestAskAForeigner(t *testing.T) {
	for name, f := range map[string]*foreign{
		"no Registration service": nil,
		"a device plugin":         {info: &registerapi.PluginInfo{Type: "DevicePlugin", Name: "d"}},
		"a long answer":           {info: &registerapi.PluginInfo{Type: PluginType, Name: strings.Repeat("x", maxMessage)}},
		"an error":                {err: status.Error(codes.Internal, "disk on fire")},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Ask(t.Context(), dialer(serveForeign(t, f)), true)
			if !errors.Is(err, ErrForeign) || errors.Is(err, ErrNoAnswer) {
				t.Errorf("got %v, %v, want ErrForeign", p, err)
			}
		})
	}
}

// acceptor accepts connections and does with each what it is told.
func acceptor(t *testing.T, do func(net.Conn)) string {
	t.Helper()
	path := socketPath(t)
	l := listen(t, path)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			do(c)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return path
}

func TestAskWithoutAnswer(t *testing.T) {
	t.Run("silent", func(t *testing.T) {
		conns := make(chan net.Conn, 1)
		path := acceptor(t, func(c net.Conn) { conns <- c })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		p, err := Ask(ctx, dialer(path), true)
		wantNoAnswer(t, p, err)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v does not wrap the deadline", err)
		}
		wantEOF(t, 0, <-conns) // nothing is left behind
	})
	t.Run("hangs up", func(t *testing.T) {
		p, err := Ask(t.Context(), dialer(acceptor(t, func(c net.Conn) { _ = c.Close() })), true)
		wantNoAnswer(t, p, err)
	})
	t.Run("hangs up later", func(t *testing.T) {
		path := acceptor(t, func(c net.Conn) {
			_, _ = io.ReadFull(c, make([]byte, 24)) // HTTP/2's preface
			_ = c.(*net.UnixConn).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		})
		p, err := Ask(t.Context(), dialer(path), true)
		wantNoAnswer(t, p, err)
		if !errors.Is(err, io.EOF) {
			t.Errorf("%v does not wrap io.EOF", err)
		}
	})
	t.Run("another protocol", func(t *testing.T) {
		path := acceptor(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		})
		p, err := Ask(t.Context(), dialer(path), true)
		wantNoAnswer(t, p, err)
	})
}

func wantNoAnswer(t *testing.T, p *Peer, err error) {
	t.Helper()
	if !errors.Is(err, ErrNoAnswer) || errors.Is(err, ErrForeign) {
		t.Errorf("got %v, %v, want ErrNoAnswer", p, err)
	}
}

// Without a deadline of the caller's, a look ends all the same.
func TestAskWithoutDeadline(t *testing.T) {
	path := acceptor(t, func(c net.Conn) { t.Cleanup(func() { _ = c.Close() }) })
	got := make(chan error, 1)
	go func() {
		_, err := Ask(context.WithoutCancel(t.Context()), dialer(path), true)
		got <- err
	}()
	select {
	case err := <-got:
		wantNoAnswer(t, nil, err)
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
}

// A look that the caller broke off says nothing of the peer: it must not count
// as silence.
func TestAskCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	path := acceptor(t, func(c net.Conn) {
		t.Cleanup(func() { _ = c.Close() })
		_, _ = io.ReadFull(c, make([]byte, 24)) // it asks
		cancel()
	})
	p, err := Ask(ctx, dialer(path), true)
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrNoAnswer) || errors.Is(err, ErrForeign) {
		t.Errorf("got %v, %v, want context.Canceled", p, err)
	}
}

func TestAskDialsOnce(t *testing.T) {
	fails := func(context.Context) (net.Conn, error) { return nil, errors.New("no route") }
	for name, dial := range map[string]func(context.Context) (net.Conn, error){
		"failing":   fails,
		"hanging":   dialer(acceptor(t, func(c net.Conn) { t.Cleanup(func() { _ = c.Close() }) })),
		"closing":   dialer(acceptor(t, func(c net.Conn) { _ = c.Close() })),
		"answering": dialer(start(t, nil).path),
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int32
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			p, err := Ask(ctx, func(ctx context.Context) (net.Conn, error) {
				n.Add(1)
				return dial(ctx)
			}, true)
			if err == nil {
				p.Close()
			}
			if n.Load() != 1 {
				t.Errorf("%d dials, want 1", n.Load())
			}
		})
	}
}

// A connection that grpc never took is closed as well.
func TestCloseUntaken(t *testing.T) {
	a, b := net.Pipe()
	l := must(newLink(a))
	l.close()
	wantEOF(t, 0, b)
}

// grpc wants another connection when it gives one up, which it may do before
// it closes that one.
func TestTakeOnce(t *testing.T) {
	l := must(newLink(must(dialer(start(t, nil).path)(t.Context()))))
	defer l.close()
	if _, err := l.take(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if c, err := l.take(t.Context(), ""); !errors.Is(err, net.ErrClosed) {
		t.Errorf("taken twice: %v, %v", c, err)
	}
}

// A peer's metadata is bounded, and the call looks like any over a unix socket.
func TestWhatThePeerSees(t *testing.T) {
	path := socketPath(t)
	var authority []string
	s := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		authority = metadata.ValueFromIncomingContext(ctx, ":authority")
		_ = grpc.SetHeader(ctx, metadata.Pairs("x", strings.Repeat("x", maxHeaders)))
		return h(ctx, req)
	}))
	registerapi.RegisterRegistrationServer(s, foreign{info: &registerapi.PluginInfo{Type: PluginType}})
	l := listen(t, path)
	go func() { _ = s.Serve(l) }()
	_, err := Ask(t.Context(), dialer(path), false)
	s.Stop()
	if err == nil {
		t.Error("long metadata was taken")
	}
	if !slices.Equal(authority, []string{"localhost"}) {
		t.Errorf("authority %q", authority)
	}
}

// Nor does a peer that is gone come back.
func TestGoneStaysGone(t *testing.T) {
	r := start(t, nil)
	p := must(Ask(t.Context(), dialer(r.path), true))
	defer p.Close()
	r.Stop()
	awaitClosed(t, "gone", p.Gone())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := registerapi.NewRegistrationClient(p.link.cc).GetInfo(ctx, &registerapi.InfoRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call on a gone peer: %v", err)
	}
}

// stuckConn stops taking writes when told to, as a peer's full buffer does.
type stuckConn struct {
	net.Conn
	stuck  atomic.Bool
	closed chan struct{}
}

func (c *stuckConn) Write(b []byte) (int, error) {
	if c.stuck.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

func (c *stuckConn) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return c.Conn.Close()
}

func TestCloseOfAPeerThatDoesNotRead(t *testing.T) {
	r := start(t, nil)
	c := &stuckConn{closed: make(chan struct{})}
	p := must(Ask(t.Context(), func(ctx context.Context) (net.Conn, error) {
		var err error
		c.Conn, err = dialer(r.path)(ctx)
		return c, err
	}, true))
	c.stuck.Store(true)
	begin := time.Now()
	p.Close()
	if took := time.Since(begin); took > 2*time.Second { // grpc alone: 5 s
		t.Errorf("Close took %v", took)
	}
	eventually(t, "the peer saw it", func() bool { return r.Peers() == 0 })
}

// A held connection can be asked again, is counted once, and says so when the other
// end has gone.
func TestAskAgain(t *testing.T) {
	r := start(t, nil)
	p := must(Ask(t.Context(), dialer(r.path), true))
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 3 {
		if err := p.Again(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.Peers(); n != 1 {
		t.Errorf("%d peers, want 1", n)
	}
	r.Stop()
	<-p.Gone()
	if err := p.Again(ctx); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("got %v, want ErrNoAnswer", err)
	}
}
