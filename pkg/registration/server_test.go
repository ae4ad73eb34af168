package registration

import (
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestAnswersKubelet(t *testing.T) {
	r := start(t, nil)
	k := dialKubelet(t, r.path)
	got := k.getInfo(t)
	if got.GetType() != "CSIPlugin" || got.GetName() != testInfo.Driver || got.GetEndpoint() != testInfo.Endpoint ||
		!slices.Equal(got.GetSupportedVersions(), []string{"1.0.0"}) {
		t.Errorf("GetInfo = %v", got)
	}
	r.wants(t, Call{Kind: Asked, Conn: 1})
	k.notify(t, true, "")
	r.wants(t, Call{Kind: Confirmed, Conn: 1})
	k.hangUp(t)
	r.wantsNoMore(t)
}

func TestRefusal(t *testing.T) {
	r := start(t, nil)
	k := dialKubelet(t, r.path)
	k.getInfo(t)
	k.notify(t, false, "RegisterPlugin error -- dial failed")
	k.hangUp(t)
	r.wants(t, Call{Kind: Asked, Conn: 1},
		Call{Kind: Refused, Message: "RegisterPlugin error -- dial failed", Conn: 1})
	r.wantsNoMore(t)
}

func TestLeftWithoutNotify(t *testing.T) {
	r := start(t, nil)
	k := dialKubelet(t, r.path)
	k.getInfo(t)
	k.hangUp(t)
	r.wants(t, Call{Kind: Asked, Conn: 1}, Call{Kind: Left, Conn: 1})
}

// A Notify settles the GetInfo before it, not one after it.
func TestLeftAfterSecondGetInfo(t *testing.T) {
	r := start(t, nil)
	k := dialKubelet(t, r.path)
	k.getInfo(t)
	k.notify(t, true, "")
	k.getInfo(t)
	k.hangUp(t)
	r.wants(t, Call{Kind: Asked, Conn: 1}, Call{Kind: Confirmed, Conn: 1},
		Call{Kind: Asked, Conn: 1}, Call{Kind: Left, Conn: 1})
}

// Two GetInfo on one connection leave once.
func TestLeftOnce(t *testing.T) {
	r := start(t, nil)
	k := dialKubelet(t, r.path)
	k.getInfo(t)
	k.getInfo(t)
	k.hangUp(t)
	r.wants(t, Call{Kind: Asked, Conn: 1}, Call{Kind: Asked, Conn: 1}, Call{Kind: Left, Conn: 1})
	r.wantsNoMore(t)
}

// A connection that breaks without a goodbye leaves too.
func TestLeftOnBrokenConnection(t *testing.T) {
	r := start(t, nil)
	var raw net.Conn
	l, err := newLink(must(dialer(r.path)(t.Context())))
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	raw = l.raw
	if _, err := registerapi.NewRegistrationClient(l.cc).GetInfo(t.Context(), &registerapi.InfoRequest{}); err != nil {
		t.Fatal(err)
	}
	_ = raw.Close()
	r.wants(t, Call{Kind: Asked, Conn: 1}, Call{Kind: Left, Conn: 1})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// grpc does not wait for the calls of a connection that breaks, so a GetInfo
// can be reported after its connection has ended: Left comes last all the same.
func TestAskedAfterTheEnd(t *testing.T) {
	var got []Kind
	c := &conn{conns: newConns(func(c Call) error { got = append(got, c.Kind); return nil })}
	c.end()
	if err := c.asked(); err != nil {
		t.Error(err)
	}
	if want := []Kind{Asked, Left}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A look that is counted after its connection has ended would stay for ever.
func TestHoldAfterTheEnd(t *testing.T) {
	c := &conn{conns: newConns(func(Call) error { return nil })}
	c.end()
	c.look(true)
	if n := c.conns.peers(); n != 0 {
		t.Errorf("%d peers, want 0", n)
	}
}

func TestAskedBeforeTheAnswer(t *testing.T) {
	asked, goOn := make(chan struct{}), make(chan struct{})
	r := start(t, func(c Call) {
		if c.Kind == Asked {
			close(asked)
			<-goOn
		}
	})
	k := dialKubelet(t, r.path)
	answered := make(chan error, 1)
	go func() {
		_, err := k.GetInfo(t.Context(), &registerapi.InfoRequest{})
		answered <- err
	}()
	awaitClosed(t, "asked", asked)
	select {
	case err := <-answered:
		t.Errorf("answered (%v) before OnCall returned", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// OnCall is called by one goroutine at a time: the race detector sees the
// counter, and the flag sees overlaps.
func TestOneCallAtATime(t *testing.T) {
	n, busy := 0, false
	s := must(NewServer(Config{Info: testInfo, Self: testSelf, OnCall: func(Call) error {
		if busy {
			t.Error("two at a time")
		}
		busy = true
		n++
		time.Sleep(time.Millisecond)
		busy = false
		return nil
	}}))
	path := socketPath(t)
	l := listen(t, path)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	var wg sync.WaitGroup
	for range 8 {
		k := dialKubelet(t, path)
		wg.Go(func() {
			for range 4 {
				k.getInfo(t)
				k.notify(t, true, "")
			}
		})
	}
	wg.Wait()
	s.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if n != 64 {
		t.Errorf("%d calls, want 64", n)
	}
}

// No look is kubelet's call, whatever its value: a later release may have
// other values than this one.
func TestLooksDoNotCount(t *testing.T) {
	for _, value := range []string{LookHold, LookGlance, "of-a-later-release", ""} {
		t.Run(value, func(t *testing.T) {
			r := start(t, nil)
			k := dialKubelet(t, r.path)
			k.getInfo(t, LookHeader, value)
			k.notify(t, false, "not kubelet", LookHeader, value)
			want := 0
			if value == LookHold {
				want = 1
			}
			if got := r.Peers(); got != want {
				t.Errorf("%d peers, want %d", got, want)
			}
			k.hangUp(t)
			r.wantsNoMore(t)
		})
	}
}

// Kubelet is told nothing of us, and only it is.
func TestIdentityOnlyForLooks(t *testing.T) {
	r := start(t, nil)
	k := dialKubelet(t, r.path)
	var h metadata.MD
	if _, err := k.GetInfo(t.Context(), &registerapi.InfoRequest{}, grpc.Header(&h)); err != nil {
		t.Fatal(err)
	}
	if _, ours := identityFrom(h); ours {
		t.Errorf("kubelet was told %v", h)
	}
}

func TestPeersAreCounted(t *testing.T) {
	r := start(t, nil)
	glance := must(Ask(t.Context(), dialer(r.path), false))
	defer glance.Close()
	first := must(Ask(t.Context(), dialer(r.path), true))
	defer first.Close()
	if n := r.Peers(); n != 1 {
		t.Errorf("after a glance and a hold: %d peers, want 1", n)
	}
	second := must(Ask(t.Context(), dialer(r.path), true))
	if n := r.Peers(); n != 2 {
		t.Errorf("after another hold: %d peers, want 2", n)
	}
	// Looking again on the same connection makes no third peer.
	ctx := metadata.AppendToOutgoingContext(t.Context(), LookHeader, LookHold)
	if _, err := registerapi.NewRegistrationClient(second.link.cc).GetInfo(ctx, &registerapi.InfoRequest{}); err != nil {
		t.Fatal(err)
	}
	if n := r.Peers(); n != 2 {
		t.Errorf("after a second look on one connection: %d peers, want 2", n)
	}
	second.Close()
	eventually(t, "one peer left", func() bool { return r.Peers() == 1 })
	glance.Close()
	first.Close()
	eventually(t, "no peer left", func() bool { return r.Peers() == 0 })
}

func TestConnectionsAreForgotten(t *testing.T) {
	r := start(t, nil)
	k := dialKubelet(t, r.path)
	k.getInfo(t)
	raw := must(dialer(r.path)(t.Context()))
	eventually(t, "two connections", func() bool { return r.Connections() == 2 })
	_ = raw.Close()
	k.hangUp(t)
	eventually(t, "no connection", func() bool { return r.Connections() == 0 })
}

// What callers send is bounded.
func TestOversizedCalls(t *testing.T) {
	r := start(t, nil)
	k := dialKubelet(t, r.path)
	st := &registerapi.RegistrationStatus{Error: strings.Repeat("x", maxMessage+1)}
	if _, err := k.NotifyRegistrationStatus(t.Context(), st); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a long message: %v", err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", maxHeaders+1))
	if _, err := k.GetInfo(ctx, &registerapi.InfoRequest{}); err == nil {
		t.Error("long metadata was taken")
	}
	k.notify(t, false, strings.Repeat("x", 4<<10)) // as kubelet's words may be
}

func TestNewServerValidates(t *testing.T) {
	good := Config{Info: testInfo, Self: testSelf, OnCall: func(Call) error { return nil }}
	for name, tt := range map[string]struct {
		spoil func(*Config)
		want  string
	}{
		"driver":   {func(c *Config) { c.Info.Driver = "" }, "no driver name"},
		"endpoint": {func(c *Config) { c.Info.Endpoint = "" }, "no endpoint"},
		"onCall":   {func(c *Config) { c.OnCall = nil }, "nobody to tell"},
		"instance": {func(c *Config) { c.Self.Instance = "" }, "no instance"},
		"ascii":    {func(c *Config) { c.Self.Host = "nöde" }, "not printable ASCII"},
		"newline":  {func(c *Config) { c.Self.Version = "v1\nx" }, "not printable ASCII"},
		"long":     {func(c *Config) { c.Self.Host = strings.Repeat("x", 257) }, "257 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			tt.spoil(&c)
			if _, err := NewServer(c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestKindString(t *testing.T) {
	for k, want := range map[Kind]string{Asked: "asked", Confirmed: "confirmed", Refused: "refused", Left: "left", 0: "kind(0)"} {
		if got := k.String(); got != want {
			t.Errorf("%d: %q, want %q", k, got, want)
		}
	}
}

// A GetInfo that is turned away is no call of kubelet's that waits for its end.
func TestTurnedAway(t *testing.T) {
	var calls []Call
	s := must(NewServer(Config{Info: testInfo, Self: testSelf, OnCall: func(c Call) error {
		calls = append(calls, c)
		return errors.New("ask the other one")
	}}))
	path := socketPath(t)
	l := listen(t, path)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	k := dialKubelet(t, path)
	if _, err := k.GetInfo(t.Context(), &registerapi.InfoRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("want Unavailable, got %v", err)
	}
	k.hangUp(t)
	eventually(t, "the connection has ended", func() bool { return s.Connections() == 0 })
	s.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if len(calls) != 1 || calls[0].Kind != Asked {
		t.Errorf("reported: %+v", calls)
	}
}
