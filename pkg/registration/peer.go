package registration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

var (
	// ErrNoAnswer means that somebody accepted the connection, or at least the
	// kernel did in its name, but GetInfo was not answered in time. It says
	// nothing about whether the process behind it lives (a frozen one reads
	// the same). The error also wraps io.EOF or the errno with which the
	// connection ended, if it did.
	ErrNoAnswer = errors.New("connected, but got no answer to GetInfo")

	// ErrForeign means that GetInfo was answered, but not as the registrar of
	// a CSI driver answers: no Registration service, an error, or another
	// plugin type.
	ErrForeign = errors.New("answered, but not as a CSI registrar does")
)

const (
	// askPatience bounds Ask when its context has no deadline. Kubelet gives
	// GetInfo 1 s: pluginmanager/operationexecutor/operation_generator.go in
	// v1.36.3.
	askPatience = time.Second
	// closePatience is how long Peer.Close tries to say goodbye to a peer that
	// may not be reading.
	closePatience = 100 * time.Millisecond
)

// Peer is a connection to a registration socket on which GetInfo was answered.
// Its methods may be called from any goroutine.
type Peer struct {
	info     Info
	identity Identity
	ours     bool
	look     string // the value of LookHeader
	link     *link
}

// Ask dials once and sends one GetInfo, marked as a look. It never retries,
// and leaves no connection behind when it returns an error. It lasts until ctx
// is done, or 1 s if ctx has no deadline.
//
// With hold, the peer counts the connection in Server.Peers for as long as it
// is open; the caller closes it in any case.
//
// The error is one of: what dial returned, wrapped; ErrNoAnswer; ErrForeign; or
// context.Canceled when the caller gave up, which says nothing of the peer.
func Ask(ctx context.Context, dial func(context.Context) (net.Conn, error), hold bool) (*Peer, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askPatience)
		defer cancel()
	}
	raw, err := dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at the registration socket: %w", err)
	}
	l, err := newLink(raw)
	if err != nil {
		return nil, fmt.Errorf("look at the registration socket: %w", err)
	}
	p := &Peer{link: l, look: LookGlance}
	if hold {
		p.look = LookHold
	}
	var header metadata.MD
	if p.info, header, err = p.getInfo(ctx); err != nil {
		l.close()
		return nil, err
	}
	p.identity, p.ours = identityFrom(header)
	return p, nil
}

// Again asks once more on the same connection: whether the peer still answers. It
// costs a fraction of a new one, and says nothing about whether the peer would still
// accept one. Errors and ctx are as with Ask, but a deadline must be set.
func (p *Peer) Again(ctx context.Context) error {
	_, _, err := p.getInfo(ctx)
	return err
}

func (p *Peer) getInfo(ctx context.Context) (info Info, header metadata.MD, err error) {
	ans, err := registerapi.NewRegistrationClient(p.link.cc).GetInfo(
		metadata.AppendToOutgoingContext(ctx, LookHeader, p.look),
		&registerapi.InfoRequest{}, grpc.Header(&header))
	if err == nil && ans.GetType() != PluginType {
		err = fmt.Errorf("%w: it is a %q", ErrForeign, ans.GetType())
	} else if err != nil {
		err = p.link.explain(ctx, err)
	}
	if err != nil {
		return Info{}, nil, fmt.Errorf("look at the registration socket: %w", err)
	}
	return Info{Driver: ans.GetName(), Endpoint: ans.GetEndpoint(), Versions: ans.GetSupportedVersions()}, header, nil
}

// Info returns what the peer tells kubelet.
func (p *Peer) Info() Info { return p.info }

// Identity returns who the peer is. False means that it did not say: it is a
// registrar of another make, which takes no lease and removes by name.
func (p *Peer) Identity() (Identity, bool) { return p.identity, p.ours }

// Gone is closed when the connection has ended, whoever ended it. It says
// "look again", no more: a peer that leaves politely and lives on ends its
// connections too.
func (p *Peer) Gone() <-chan struct{} { return p.link.gone }

// Close ends the connection and waits for its goroutines, for 100 ms longer
// than that takes if the peer does not read. It may be called more than once.
func (p *Peer) Close() { p.link.close() }

func identityFrom(h metadata.MD) (Identity, bool) {
	get := func(key string) string {
		if v := h.Get(key); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	id := Identity{Instance: get(headerInstance), Version: get(headerVersion), Host: get(headerHost), Control: get(headerControl)}
	// A time that does not parse is a zero time: later releases may say it
	// otherwise, and nothing is decided by it here.
	id.Started, _ = time.Parse(time.RFC3339Nano, get(headerStarted))
	return id, id.Instance != ""
}

// link is a grpc channel over one connection that was made beforehand. When
// that ends the channel is of no use any more: it never dials another.
type link struct {
	cc   *grpc.ClientConn
	raw  net.Conn
	gone chan struct{}

	mu    sync.Mutex
	used  bool  // grpc has taken the connection
	cause error // how the connection ended, if reading it failed

	goneOnce, closeOnce sync.Once
}

func newLink(raw net.Conn) (*link, error) {
	l := &link{raw: raw, gone: make(chan struct{})}
	// passthrough: nothing is resolved, and with a dialer of ours grpc uses no
	// proxy. Its idle timeout would hang up after 30 min. The name becomes the
	// authority, which is localhost for unix sockets.
	cc, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(l.take),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	l.cc = cc
	return l, nil
}

// take is grpc's dialer. It gives the connection out once: grpc may want a
// second before the first is closed, after a GOAWAY for one.
func (l *link) take(context.Context, string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used {
		return nil, net.ErrClosed
	}
	l.used = true
	return &linkConn{Conn: l.raw, link: l}, nil
}

// ended notes the end of the connection.
func (l *link) ended(cause error) {
	l.mu.Lock()
	if l.cause == nil {
		l.cause = cause
	}
	l.mu.Unlock()
	l.goneOnce.Do(func() { close(l.gone) })
}

// explain turns grpc's words into ours.
func (l *link) explain(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	l.mu.Lock()
	cause := l.cause
	l.mu.Unlock()
	st := status.Convert(err)
	switch st.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		if cause != nil {
			return fmt.Errorf("%w: %w", ErrNoAnswer, cause)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", ErrNoAnswer, ctx.Err())
		}
		return fmt.Errorf("%w: %s", ErrNoAnswer, st.Message())
	case codes.Unimplemented:
		return fmt.Errorf("%w: it has no Registration service", ErrForeign)
	default:
		return fmt.Errorf("%w: %s: %s", ErrForeign, st.Code(), st.Message())
	}
}

func (l *link) close() {
	l.closeOnce.Do(func() {
		// grpc says goodbye and would wait 5 s for a peer that does not read.
		force := time.AfterFunc(closePatience, func() { _ = l.raw.Close() })
		_ = l.cc.Close()
		force.Stop()
		_ = l.raw.Close() // if grpc never took it
	})
}

// linkConn tells its link when it ends.
type linkConn struct {
	net.Conn
	link *link
}

func (c *linkConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.link.ended(err)
	}
	return n, err
}

func (c *linkConn) Close() error {
	err := c.Conn.Close()
	c.link.ended(nil)
	return err
}
