package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds what must happen; it is not a measure of how fast.
const patience = 10 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a Server that runs; said has what it said.
type running struct {
	*Server
	said chan error
	stop context.CancelFunc
	done chan error
}

func run(t *testing.T, cfg Config) *running {
	t.Helper()
	return runWith(t, cfg, func(*Server) {})
}

// runWith lets prepare set the seams.
func runWith(t *testing.T, cfg Config, prepare func(*Server)) *running {
	t.Helper()
	r := &running{said: make(chan error, 1000), done: make(chan error, 1)}
	cfg.Say = func(err error) { r.said <- err }
	if cfg.Health == nil {
		cfg.Health = func() error { return nil }
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.firstRetry, s.longRetry = time.Millisecond, 5*time.Millisecond
	prepare(s)
	r.Server = s
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { r.done <- s.Run(ctx); close(r.done) }()
	t.Cleanup(func() { stop(); <-r.done })
	return r
}

// listening waits for the address.
func (r *running) listening(t *testing.T) string {
	t.Helper()
	deadline := time.Now().Add(patience)
	for r.Addr() == "" {
		if time.Now().After(deadline) {
			t.Fatal("it does not listen")
		}
		time.Sleep(time.Millisecond)
	}
	return r.Addr()
}

func (r *running) wantSaid(t *testing.T, words ...string) {
	t.Helper()
	select {
	case err := <-r.said:
		if len(words) == 0 {
			if err != nil {
				t.Errorf("said %v, want nil", err)
			}
			return
		}
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("said %v, want %q in it", err, w)
			}
		}
	case <-time.After(patience):
		t.Fatal("nothing was said")
	}
}

func get(t *testing.T, addr, path string) (int, string, http.Header) {
	t.Helper()
	c := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b), res.Header
}

func TestHealthz(t *testing.T) {
	for name, tt := range map[string]struct {
		health error
		code   int
		body   string
	}{
		"healthy":   {nil, 200, "ok"},
		"no socket": {ErrNoSocket, 404, "registration socket does not exist"},
		"wrapped":   {fmt.Errorf("stat: %w", ErrNoSocket), 404, "registration socket does not exist"},
		"other":     {errors.New("another one answers\n"), 500, "another one answers"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, Config{Address: "127.0.0.1:0", Health: func() error { return tt.health }})
			code, body, h := get(t, r.listening(t), "/healthz")
			if len(r.said) > 0 {
				t.Errorf("said %v", <-r.said)
			}
			if code != tt.code || body != tt.body {
				t.Errorf("got %d %q, want %d %q", code, body, tt.code, tt.body)
			}
			if ct := h.Get("Content-Type"); ct != "text/plain; charset=utf-8" {
				t.Errorf("Content-Type %q", ct)
			}
		})
	}
}

func TestPprofOnlyIfWanted(t *testing.T) {
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/symbol", "/debug/pprof/goroutine?debug=1", "/debug/pprof/trace?seconds=0.01", "/debug/pprof/profile?seconds=1"} {
		for wanted, want := range map[bool]int{true: 200, false: 404} {
			r := run(t, Config{Address: "127.0.0.1:0", Pprof: wanted})
			if code, body, _ := get(t, r.listening(t), path); code != want {
				t.Errorf("pprof %v: %s: %d %.80q, want %d", wanted, path, code, body, want)
			}
		}
	}
}

// A profile may take longer than a client otherwise may.
func TestProfileOutlastsPatience(t *testing.T) {
	r := runWith(t, Config{Address: "127.0.0.1:0", Pprof: true}, func(s *Server) { s.clientPatience = 200 * time.Millisecond })
	begin := time.Now()
	code, body, _ := get(t, r.listening(t), "/debug/pprof/trace?seconds=1")
	if code != 200 || len(body) == 0 {
		t.Errorf("got %d and %d bytes", code, len(body))
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("the trace ended after %v", took)
	}
}

func TestOtherPaths(t *testing.T) {
	r := run(t, Config{Address: "127.0.0.1:0"})
	for _, path := range []string{"/", "/healthz/", "/metrics"} {
		if code, _, _ := get(t, r.listening(t), path); code != 404 {
			t.Errorf("%s: %d, want 404", path, code)
		}
	}
}

// A busy port is said once, and taken when it is free.
func TestBusyPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	addr := l.Addr().String()
	tried := make(chan struct{}, 1000)
	r := runWith(t, Config{Address: addr}, func(s *Server) {
		listen := s.listen
		s.listen = func(ctx context.Context) (net.Listener, error) {
			tried <- struct{}{}
			return listen(ctx)
		}
	})
	r.wantSaid(t, addr, "in use", "trying again")
	for range 5 {
		<-tried
	}
	if len(r.said) > 0 {
		t.Errorf("said again: %v", <-r.said)
	}
	_ = l.Close()
	if got := r.listening(t); got != addr {
		t.Errorf("listens at %s, want %s", got, addr)
	}
	r.wantSaid(t) // that it is over
	if code, body, _ := get(t, addr, "/healthz"); code != 200 {
		t.Errorf("got %d %q", code, body)
	}
}

// Another reason is said again; the waits grow to the longest and no more.
func TestReasonsAreSaidWhenTheyChange(t *testing.T) {
	reasons := []string{"a", "a", "b", "b", "a", "", ""}
	r := runWith(t, Config{Address: "127.0.0.1:0"}, func(s *Server) {
		listen := s.listen
		s.listen = func(ctx context.Context) (net.Listener, error) {
			reason := reasons[0]
			reasons = reasons[1:]
			if reason != "" {
				return nil, errors.New(reason)
			}
			return listen(ctx)
		}
	})
	for _, want := range []string{"a", "b", "a", ""} {
		if want == "" {
			r.wantSaid(t)
		} else {
			r.wantSaid(t, ": "+want+": ")
		}
	}
	r.listening(t)
	if len(r.said) > 0 {
		t.Errorf("said more: %v", <-r.said)
	}
}

// An address that this host does not have (yet) is no end either: TEST-NET-1.
func TestAbsentAddress(t *testing.T) {
	r := run(t, Config{Address: "192.0.2.1:9808"})
	r.wantSaid(t, "192.0.2.1:9808", "trying again")
	select {
	case err := <-r.done:
		t.Fatalf("Run ended: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	r.stop()
	if err := <-r.done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// Waiting for a port is no reason to be late.
func TestStopWhileWaiting(t *testing.T) {
	r := runWith(t, Config{Address: "192.0.2.1:9808"}, func(s *Server) {
		s.firstRetry, s.longRetry = time.Hour, time.Hour
	})
	r.wantSaid(t, "trying again")
	r.stop()
	select {
	case err := <-r.done:
		if err != nil {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Run goes on")
	}
}

// broken can accept once, and then no more.
type broken struct {
	net.Listener
	used bool
}

func (b *broken) Accept() (net.Conn, error) {
	if b.used {
		return nil, errors.New("out of order")
	}
	b.used = true
	return b.Listener.Accept()
}

func TestServeReportsABrokenListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Address: ":0", Health: func() error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, l.Addr().String())
	if err := s.serve(t.Context(), &broken{Listener: l}); err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("serve: %v", err)
	}
	if s.Addr() != "" {
		t.Errorf("still listening at %s", s.Addr())
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
	wantEOF(t, c)
}

func TestNewValidates(t *testing.T) {
	health := func() error { return nil }
	for name, tt := range map[string]struct {
		cfg  Config
		want string
	}{
		"no port":   {Config{Address: "localhost", Health: health}, "host:port"},
		"empty":     {Config{Health: health}, "host:port"},
		"no health": {Config{Address: ":80"}, "nobody to ask"},
		"port":      {Config{Address: ":9808", Health: health}, ""},
		"IPv6":      {Config{Address: "[::1]:9808", Health: health}, ""},
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
