package registration

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestCloseListener(t *testing.T) {
	r := start(t, nil)
	k := dialKubelet(t, r.path)
	k.getInfo(t)
	r.CloseListener()
	if err := <-r.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	k.notify(t, true, "") // the connection goes on
	r.wants(t, Call{Kind: Asked, Conn: 1}, Call{Kind: Confirmed, Conn: 1})

	// And so does the server, elsewhere.
	r.path = socketPath(t)
	l := listen(t, r.path)
	go func() { r.served <- r.Serve(l) }()
	r.wantsNoMore(t)
}

// A connection that was accepted while Stop went over the others is closed.
func TestAcceptAfterStop(t *testing.T) {
	c := newConns(func(Call) error { return nil })
	path := socketPath(t)
	l := &listener{Listener: listen(t, path), conns: c}
	raw := must(dialer(path)(t.Context()))
	c.stop()
	if got, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept = %v, %v, want net.ErrClosed", got, err)
	}
	wantEOF(t, 0, raw)
}

func TestServeAfterStop(t *testing.T) {
	for name, end := range map[string]func(*Server){
		"Stop":  (*Server).Stop,
		"Drain": func(s *Server) { s.Drain(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := must(NewServer(Config{Info: testInfo, Self: testSelf, OnCall: func(Call) error { return nil }}))
			end(s)
			path := socketPath(t)
			l := listen(t, path)
			if err := s.Serve(l); err != nil {
				t.Errorf("Serve: %v", err)
			}
			if c, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the listener is open: %v, %v", c, err)
			}
		})
	}
}

type brokenListener struct{ net.Listener }

func (brokenListener) Accept() (net.Conn, error) { return nil, errors.New("out of order") }

func TestServeReportsABrokenListener(t *testing.T) {
	s := must(NewServer(Config{Info: testInfo, Self: testSelf, OnCall: func(Call) error { return nil }}))
	defer s.Stop()
	path := socketPath(t)
	err := s.Serve(brokenListener{listen(t, path)})
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("Serve: %v", err)
	}
}

// A connection that never speaks HTTP/2 makes grpc's own Stop wait for 120 s.
func TestStopWithSilentConnections(t *testing.T) {
	r := start(t, nil)
	var raws []net.Conn
	for range 3 {
		raws = append(raws, must(dialer(r.path)(t.Context())))
	}
	if _, err := raws[1].Write([]byte("PRI * HT")); err != nil { // spoke, but not to the end
		t.Fatal(err)
	}
	p := must(Ask(t.Context(), dialer(r.path), true)) // so the ones before are accepted
	defer p.Close()
	begin := time.Now()
	r.Stop()
	if err := <-r.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	for i, c := range raws {
		wantEOF(t, i, c)
	}
	if took := time.Since(begin); took > speechPatience/2 {
		t.Errorf("the connections ended %v after Stop", took)
	}
	awaitClosed(t, "the peer saw the end", p.Gone())
}

func wantEOF(t *testing.T, i int, c net.Conn) {
	t.Helper()
	defer func() { _ = c.Close() }()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("connection %d: %v", i, err)
	}
}

func TestStopWhileOnCallBlocks(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	r := start(t, func(Call) { close(asked); <-goOn })
	defer close(goOn)
	k := dialKubelet(t, r.path)
	go func() { _, _ = k.GetInfo(context.WithoutCancel(t.Context()), &registerapi.InfoRequest{}) }()
	awaitClosed(t, "asked", asked)
	done := make(chan struct{})
	go func() { r.Stop(); close(done) }()
	awaitClosed(t, "Stop returned", done)
}

// What we end ourselves is not kubelet's leaving.
func TestStopIsNotLeft(t *testing.T) {
	for name, end := range map[string]func(*Server){
		"Stop":  (*Server).Stop,
		"Drain": func(s *Server) { s.Drain(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, nil)
			k := dialKubelet(t, r.path)
			k.getInfo(t)
			r.wants(t, Call{Kind: Asked, Conn: 1})
			end(r.Server)
			if err := <-r.served; err != nil {
				t.Error(err)
			}
			select {
			case c := <-r.calls:
				t.Errorf("reported %+v", c)
			default:
			}
		})
	}
}

func TestDrainAnswersWhatIsUnderWay(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	r := start(t, func(c Call) {
		if c.Kind == Asked {
			close(asked)
			<-goOn
		}
	})
	silent := must(dialer(r.path)(t.Context()))
	defer func() { _ = silent.Close() }()
	p := must(Ask(t.Context(), dialer(r.path), true))
	defer p.Close()
	k := dialKubelet(t, r.path)
	answered := make(chan error, 1)
	go func() {
		_, err := k.GetInfo(t.Context(), &registerapi.InfoRequest{})
		answered <- err
	}()
	awaitClosed(t, "asked", asked)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.Drain(context.WithoutCancel(t.Context()))
	}()
	// The silent connection must not keep the peers from being told.
	awaitClosed(t, "the peer was told", p.Gone())
	if closed(drained) {
		t.Error("drained with a call under way")
	}
	close(goOn)
	if err := <-answered; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	awaitClosed(t, "drained", drained)
	if err := <-r.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestDrainIsBounded(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	r := start(t, func(Call) { close(asked); <-goOn })
	defer close(goOn)
	k := dialKubelet(t, r.path)
	go func() { _, _ = k.GetInfo(context.WithoutCancel(t.Context()), &registerapi.InfoRequest{}) }()
	awaitClosed(t, "asked", asked)
	late := must(dialer(r.path)(t.Context()))
	if _, err := late.Write([]byte("PRI * HT")); err != nil { // speaks, but not to the end
		t.Fatal(err)
	}
	eventually(t, "both are accepted", func() bool { return r.Connections() == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	go func() { r.Drain(ctx); close(done) }()
	awaitClosed(t, "Drain returned", done)
	// And what is left ends.
	begin := time.Now()
	wantEOF(t, 0, late)
	if took := time.Since(begin); took > speechPatience/2 {
		t.Errorf("a connection ended %v after Drain", took)
	}
}

func TestSilentConnectionIsDropped(t *testing.T) {
	s := must(newServer(Config{Info: testInfo, Self: testSelf, OnCall: func(Call) error { return nil }}, 50*time.Millisecond))
	path := socketPath(t)
	l := listen(t, path)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	// One that speaks in time stays, longer than that.
	p := must(Ask(t.Context(), dialer(path), true))
	defer p.Close()
	wantEOF(t, 0, must(dialer(path)(t.Context())))
	if closed(p.Gone()) {
		t.Error("a connection that spoke was dropped as well")
	}
	s.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
