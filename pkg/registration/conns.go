package registration

import (
	"context"
	"sync"

	"google.golang.org/grpc/stats"
)

// conns knows the listeners and connections of a Server, and what kubelet said
// on each. As grpc's stats handler it learns when a connection begins and ends.
type conns struct {
	// tell is held while onCall runs, so that calls are reported one at a
	// time. It is taken before mu, never while holding it.
	tell   sync.Mutex
	onCall func(Call) error

	mu        sync.Mutex
	listeners map[*listener]bool // true: we close it, so its error is no news
	raw       map[*trackedConn]struct{}
	holds     int
	lastID    uint64
	ending    bool // Stop or Drain began: we end the connections, not kubelet
	stopped   bool // Stop began: nothing is accepted any more
}

func newConns(onCall func(Call) error) *conns {
	return &conns{
		onCall:    onCall,
		listeners: make(map[*listener]bool),
		raw:       make(map[*trackedConn]struct{}),
	}
}

func (c *conns) addListener(l *listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners[l] = false
}

// dropListener reports whether the end of l was asked for.
func (c *conns) dropListener(l *listener) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.listeners[l]
	delete(c.listeners, l)
	return asked || c.ending
}

func (c *conns) closeListeners() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.listeners {
		c.listeners[l] = true
		_ = l.Close()
	}
}

// addRaw reports false when the server has stopped.
func (c *conns) addRaw(t *trackedConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return false
	}
	c.raw[t] = struct{}{}
	return true
}

func (c *conns) dropRaw(t *trackedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.raw, t)
}

func (c *conns) peers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holds
}

func (c *conns) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.raw)
}

func (c *conns) drain() {
	c.mu.Lock()
	c.ending = true
	c.mu.Unlock()
	c.closeListeners()
}

// closeSilent closes the connections on which nothing ever came.
func (c *conns) closeSilent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.raw {
		if !t.spoke.Load() {
			_ = t.Conn.Close()
		}
	}
}

func (c *conns) stop() {
	c.drain()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	for t := range c.raw {
		_ = t.Conn.Close()
	}
	clear(c.raw)
}

// conn is what is known of one connection that speaks HTTP/2.
type conn struct {
	conns *conns
	id    uint64
	// Guarded by conns.tell: whether a GetInfo of kubelet's waits for its
	// NotifyRegistrationStatus, and whether the connection has ended. A call
	// can be reported after the end, since grpc does not wait for the calls of
	// a connection that breaks.
	pending, ended bool
	// Guarded by conns.mu.
	hold, gone bool
}

// asked reports GetInfo. With an error it was turned away.
func (c *conn) asked() error {
	c.conns.tell.Lock()
	defer c.conns.tell.Unlock()
	if err := c.conns.onCall(Call{Kind: Asked, Conn: c.id}); err != nil {
		return err
	}
	c.pending = true
	c.leftIfEnded()
	return nil
}

// notified reports NotifyRegistrationStatus.
func (c *conn) notified(registered bool, words string) {
	c.conns.tell.Lock()
	defer c.conns.tell.Unlock()
	c.pending = false
	if registered {
		_ = c.conns.onCall(Call{Kind: Confirmed, Conn: c.id})
		return
	}
	_ = c.conns.onCall(Call{Kind: Refused, Message: words, Conn: c.id})
}

// end reports Left, if that is what it was.
func (c *conn) end() {
	c.conns.mu.Lock()
	c.gone = true
	if c.hold {
		c.hold = false
		c.conns.holds--
	}
	c.conns.mu.Unlock()

	c.conns.tell.Lock()
	defer c.conns.tell.Unlock()
	c.ended = true
	c.leftIfEnded()
}

// leftIfEnded is called with tell held.
func (c *conn) leftIfEnded() {
	if !c.pending || !c.ended {
		return
	}
	c.conns.mu.Lock()
	ours := c.conns.ending
	c.conns.mu.Unlock()
	if !ours {
		_ = c.conns.onCall(Call{Kind: Left, Conn: c.id})
	}
}

// look counts the connection among the peers if it asks for that.
func (c *conn) look(hold bool) {
	c.conns.mu.Lock()
	defer c.conns.mu.Unlock()
	if hold && !c.hold && !c.gone {
		c.hold = true
		c.conns.holds++
	}
}

type connKey struct{}

func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

// TagConn implements stats.Handler.
func (c *conns) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	return context.WithValue(ctx, connKey{}, &conn{conns: c, id: c.lastID})
}

// HandleConn implements stats.Handler.
func (c *conns) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnEnd); ok {
		connOf(ctx).end()
	}
}

// TagRPC implements stats.Handler.
func (c *conns) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (c *conns) HandleRPC(context.Context, stats.RPCStats) {}
