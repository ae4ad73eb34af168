package registration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	// stopPatience bounds Stop.
	stopPatience = 100 * time.Millisecond
	// speechPatience is how long a connection may stay silent before HTTP/2:
	// kubelet gives its own dial 10 s (operation_generator.go dialTimeoutDuration
	// in v1.36.3). grpc's default of 120 s would keep a stranger's goroutine
	// and buffers that long.
	speechPatience = 10 * time.Second
	// drainPatience is how long Drain leaves alone a connection that has not
	// said a byte: a caller that connected just now gets to speak.
	drainPatience = 50 * time.Millisecond
	// maxMessage bounds what a caller may make us hold, in bytes. Kubelet's
	// longest message is an error text.
	maxMessage = 256 << 10
	// maxHeaders bounds a caller's metadata, in bytes.
	maxHeaders = 16 << 10
)

// Config is what a [Server] needs.
type Config struct {
	Info Info     // told to kubelet
	Self Identity // told to other registrars that look
	// OnCall is told of each of kubelet's calls, never of another registrar's
	// look. Its error turns GetInfo away: kubelet gets Unavailable and tries again.
	// It is called by one goroutine at a time, and GetInfo is not
	// answered before it returns, so it must not block for long. What happens
	// on one connection is reported in its order, Left last. It may call the
	// Server's methods; Stop then takes its full 100 ms.
	OnCall func(Call) error
}

// Server is kubelet's Registration service. It may serve one listener after
// another, or several at once. Its methods may be called from any goroutine.
type Server struct {
	grpc  *grpc.Server
	conns *conns
}

// NewServer validates cfg and returns a Server that serves nothing yet.
func NewServer(cfg Config) (*Server, error) { return newServer(cfg, speechPatience) }

func newServer(cfg Config, speech time.Duration) (*Server, error) {
	if cfg.Info.Driver == "" {
		return nil, errors.New("registration server: no driver name")
	}
	if cfg.Info.Endpoint == "" {
		return nil, errors.New("registration server: no endpoint")
	}
	if len(cfg.Info.Versions) == 0 {
		cfg.Info.Versions = []string{"1.0.0"}
	}
	if err := cfg.Self.validate(); err != nil {
		return nil, fmt.Errorf("registration server: %w", err)
	}
	if cfg.OnCall == nil {
		return nil, errors.New("registration server: nobody to tell of kubelet's calls")
	}
	c := newConns(cfg.OnCall)
	s := grpc.NewServer(
		grpc.StatsHandler(c),
		grpc.ConnectionTimeout(speech),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
	)
	registerapi.RegisterRegistrationServer(s, newService(cfg))
	return &Server{grpc: s, conns: c}, nil
}

// Serve accepts on l until CloseListener, Drain or Stop, and then returns nil.
// It owns l and closes it before it returns; whether that unlinks a path is
// l's business. Any other end is an error that names the listener.
func (s *Server) Serve(l net.Listener) error {
	tl := &listener{Listener: l, conns: s.conns}
	s.conns.addListener(tl)
	err := s.grpc.Serve(tl)
	// grpc has closed l, whatever the reason, and tells one from another only
	// when it was asked through grpc.
	if s.conns.dropListener(tl) || err == nil {
		return nil
	}
	return fmt.Errorf("serve registration at %s: %w", l.Addr(), err)
}

// CloseListener stops accepting: it closes every listener served now, and
// leaves the connections alone. Serve may be called again with another.
func (s *Server) CloseListener() { s.conns.closeListeners() }

// Peers returns the number of open connections on which another registrar
// looked and asked to be counted ([LookHold]).
func (s *Server) Peers() int { return s.conns.peers() }

// Connections returns the number of all open connections, kubelet's and those of
// other registrars, also such that never said a byte.
func (s *Server) Connections() int { return s.conns.open() }

// Stop closes the listeners and every connection, also those that never spoke
// HTTP/2, and waits for their goroutines, for at most 100 ms. It reports
// nothing as Left: it is not kubelet that ends these connections. The Server
// serves no more afterwards.
func (s *Server) Stop() {
	s.conns.stop()
	await(context.Background(), stopPatience, s.grpc.Stop)
}

// Drain closes the listeners, tells every client to hang up, lets the calls
// under way be answered until ctx is done, and then does as Stop does. A client
// that is between two calls, as kubelet is before NotifyRegistrationStatus,
// dials anew for the next. Connections that never said a byte are closed after
// 50 ms: grpc would not begin to drain before they speak.
func (s *Server) Drain(ctx context.Context) {
	s.conns.drain()
	silent := time.AfterFunc(drainPatience, s.conns.closeSilent)
	await(ctx, 0, s.grpc.GracefulStop)
	silent.Stop()
	s.Stop()
}

// await runs f in a goroutine and returns when f does, ctx is done or, if
// patience is not 0, patience has passed.
func await(ctx context.Context, patience time.Duration, f func()) {
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// service answers the calls.
type service struct {
	registerapi.UnimplementedRegistrationServer
	answer *registerapi.PluginInfo
	self   metadata.MD
}

func newService(cfg Config) *service {
	return &service{
		answer: &registerapi.PluginInfo{
			Type:              PluginType,
			Name:              cfg.Info.Driver,
			Endpoint:          cfg.Info.Endpoint,
			SupportedVersions: append([]string(nil), cfg.Info.Versions...),
		},
		self: metadata.Pairs(
			headerInstance, cfg.Self.Instance,
			headerVersion, cfg.Self.Version,
			headerHost, cfg.Self.Host,
			headerStarted, cfg.Self.Started.UTC().Format(time.RFC3339Nano),
			headerControl, cfg.Self.Control,
		),
	}
}

// GetInfo answers kubelet, and registrars that look.
func (s *service) GetInfo(ctx context.Context, _ *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	c := connOf(ctx)
	if look, ok := lookOf(ctx); ok {
		c.look(look == LookHold)
		if err := grpc.SetHeader(ctx, s.self); err != nil {
			return nil, fmt.Errorf("set identity: %w", err)
		}
		return s.answer, nil
	}
	if err := c.asked(); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return s.answer, nil
}

// NotifyRegistrationStatus takes note of what kubelet says.
func (s *service) NotifyRegistrationStatus(ctx context.Context, st *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	if _, ok := lookOf(ctx); !ok {
		connOf(ctx).notified(st.GetPluginRegistered(), st.GetError())
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

// lookOf returns the value of LookHeader, and whether it is there at all.
func lookOf(ctx context.Context) (string, bool) {
	v := metadata.ValueFromIncomingContext(ctx, LookHeader)
	if len(v) == 0 {
		return "", false
	}
	return v[0], true
}

// listener hands out connections that conns can close, so that one which never
// speaks HTTP/2 does not outlive Stop.
type listener struct {
	net.Listener
	conns *conns
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tc := &trackedConn{Conn: c, conns: l.conns}
	if !l.conns.addRaw(tc) {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	return tc, nil
}

// trackedConn knows whether a byte ever came, and is forgotten when closed.
type trackedConn struct {
	net.Conn
	conns *conns
	spoke atomic.Bool
}

func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.spoke.Load() {
		c.spoke.Store(true)
	}
	return n, err
}

func (c *trackedConn) Close() error {
	c.conns.dropRaw(c)
	return c.Conn.Close()
}
