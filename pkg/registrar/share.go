package registrar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/pkg/control"
	own "github.com/holdfast-csi/node-driver-registrar/pkg/ownership"
	"github.com/holdfast-csi/node-driver-registrar/pkg/registration"
	"github.com/holdfast-csi/node-driver-registrar/pkg/regsocket"

	"k8s.io/klog/v2"
)

const (
	// stepFor is how long a peer may take for one step of a conversation, and adoptFor
	// how long a newcomer waits for the whole of it before it publishes.
	stepFor  = 200 * time.Millisecond
	adoptFor = time.Second
	// tellFor is how long it may take to tell one holder what kubelet said.
	tellFor = 50 * time.Millisecond
	// succeedAfter is how long an older holder of a spare leaves the succession to each
	// newer one.
	succeedAfter = 100 * time.Millisecond
)

// sharing is this instance's part in sharing one listener with the other instances on
// the node: one accepts, the others hold spares and hear what kubelet said. It moves
// descriptors and words; ownership.Step decides. Safe for concurrent use.
type sharing struct {
	r        *Registrar
	place    *control.Place
	sockets  *regsocket.Place
	listener *control.Listener
	self     registration.Identity
	events   chan shareEvent

	mu       sync.Mutex
	closed   bool
	accepts  bool             // on the listener of which spare is a copy
	spare    *regsocket.Spare // nil if there is none
	endpoint string           // that kubelet was told at this listener
	kubelet  control.Kubelet  // what kubelet last said, to this instance or to the acceptor
	acceptor *control.Conn    // while this instance does not accept
	follows  string           // the acceptor's instance
	newer    int              // holders of a spare that are newer than this one
	holders  []holder         // while it accepts
	giving   *giving          // to whom it gives the listener
}

// holder is another instance with a spare.
type holder struct {
	conn    *control.Conn
	started time.Time
}

// shareEvent is news for Step; a question is answered on reply.
type shareEvent struct {
	news    own.News
	kubelet control.KubeletState // if not empty: what the acceptor says kubelet said
	reply   chan<- own.Do        // with own.GiveAsked: Give, Decline or Defer
}

// newSharing makes the control socket.
func newSharing(r *Registrar, place *control.Place, sockets *regsocket.Place, self registration.Identity) (*sharing, error) {
	listener, err := place.Listen(r.pid)
	if err != nil {
		return nil, err
	}
	self.Control = listener.Name()
	return &sharing{r: r, place: place, sockets: sockets, listener: listener, self: self, events: r.shared}, nil
}

// run hears other instances out until ctx is done or this one leaves.
func (s *sharing) run(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		conn, hello, err := s.listener.Accept(ctx)
		if err != nil {
			return
		}
		serving.Go(func() { s.serve(ctx, conn, hello) })
	}
}

// serve grants what the dialer wants, if it can be granted.
func (s *sharing) serve(ctx context.Context, conn *control.Conn, hello control.Hello) {
	defer conn.Close()
	switch hello.Wants {
	case control.WantsListener:
		s.give(ctx, conn, hello)
	case control.WantsSpare:
		s.lend(ctx, conn, hello)
	default:
		_ = conn.Send(ctx, control.Publish{Reason: "this release does not know what is wanted"})
	}
}

// give hands the listener to a newcomer, and keeps a spare.
func (s *sharing) give(ctx context.Context, conn *control.Conn, hello control.Hello) {
	no := control.Publish{Reason: s.whyNot(hello)}
	if no.Reason == "" {
		switch s.ask(ctx, own.GiveAsked) {
		case own.Give:
		case own.Decline:
			no.Reason = "kubelet has not confirmed this listener"
		default:
			no = control.Publish{Reason: "another accepts, or is about to", Again: true}
		}
	}
	if no.Reason != "" {
		klog.V(2).InfoS("Not handing the registration socket over", "host", hello.Host, "because", no.Reason)
		_ = conn.Send(ctx, no)
		return
	}
	spare, err := s.handOver(ctx, conn)
	if err == nil {
		err = s.yield(ctx, &giving{spare: spare, conn: conn, instance: hello.Instance, yielded: make(chan struct{})})
	}
	if err != nil {
		klog.InfoS("The registration socket was not handed over, this instance keeps it", "host", hello.Host, "because", err.Error())
		s.tellLoop(ctx, shareEvent{news: own.NotGiven})
		return
	}
	klog.InfoS("Handed the registration socket over, standing by with a copy; kubelet notices nothing", "host", hello.Host, "version", hello.Release)
	s.follow(ctx, conn)
}

// giving is a listener on its way to a newcomer, which accepts on it already.
type giving struct {
	spare    *regsocket.Spare
	conn     *control.Conn
	instance string
	yielded  chan struct{} // closed by the worker
}

// yield has the worker stop accepting, and waits for that.
func (s *sharing) yield(ctx context.Context, g *giving) error {
	s.mu.Lock()
	s.giving = g
	s.mu.Unlock()
	s.tellLoop(ctx, shareEvent{news: own.Given})
	err := step(ctx, func(ctx context.Context) error {
		select {
		case <-g.yielded:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && s.giving != g { // it was, just now
		return nil
	}
	s.giving = nil
	return err
}

// whyNot says why kubelet would learn something from this newcomer, or nothing.
func (s *sharing) whyNot(hello control.Hello) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.r.info.has()
	switch {
	case s.closed || !s.accepts:
		return "" // Step knows better
	case hello.Driver != s.sockets.Driver() || hello.Endpoint != s.endpoint:
		return fmt.Sprintf("kubelet was told %s of %s here", s.endpoint, s.sockets.Driver())
	case !slices.Equal(hello.Versions, []string{"1.0.0"}):
		return "other versions were announced"
	case has == "":
		return "it is not known which node info kubelet has"
	case hello.NodeInfo != has:
		return "the node info differs from what kubelet has"
	}
	return ""
}

// lend gives a copy of the listener to one that stands by.
func (s *sharing) lend(ctx context.Context, conn *control.Conn, hello control.Hello) {
	s.mu.Lock()
	accepts := s.accepts && !s.closed
	s.mu.Unlock()
	if !accepts {
		_ = conn.Send(ctx, control.Publish{Reason: "this instance does not accept", Again: true})
		return
	}
	if _, err := s.handOver(ctx, conn); err != nil {
		klog.V(2).InfoS("No copy of the registration socket for an instance that stands by", "host", hello.Host, "because", err.Error())
		return
	}
	s.keep(ctx, holder{conn, hello.Started})
}

// handOver sends a copy of the listener to a peer that has just answered: one that is
// frozen would let connections pile up in it. It returns what was copied.
func (s *sharing) handOver(ctx context.Context, conn *control.Conn) (*regsocket.Spare, error) {
	nonce := uint64(time.Now().UnixNano())
	if err := step(ctx, func(ctx context.Context) error { return conn.Send(ctx, control.Ready{Nonce: nonce}) }); err != nil {
		return nil, err
	}
	if err := s.await(ctx, conn, control.IsReady{Nonce: nonce}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	spare, kubelet, ok := s.spare, s.kubelet, s.accepts
	s.mu.Unlock()
	if !ok || spare == nil {
		return nil, errors.New("another listener was published meanwhile")
	}
	id := spare.ID()
	frame := control.Handover{Dev: id.Dev, Ino: id.Ino, Changed: id.Changed, Kubelet: kubelet}
	if err := step(ctx, func(ctx context.Context) error { return conn.SendWith(ctx, frame, spare.Control) }); err != nil {
		return nil, err
	}
	return spare, s.await(ctx, conn, control.Accepting{})
}

// await receives want next, in time.
func (s *sharing) await(ctx context.Context, conn *control.Conn, want control.Frame) error {
	return step(ctx, func(ctx context.Context) error {
		got, file, err := conn.Receive(ctx)
		if file != nil {
			_ = file.Close()
		}
		if err == nil && got != want {
			err = fmt.Errorf("it said %T, not %T", got, want)
		}
		return err
	})
}

func step(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, stepFor)
	defer cancel()
	return do(ctx)
}

// keep takes a holder of a spare in, and holds the connection to it.
func (s *sharing) keep(ctx context.Context, h holder) {
	s.mu.Lock()
	if s.closed || !s.accepts {
		s.mu.Unlock()
		return
	}
	s.holders = append(s.holders, h)
	s.tellAll()
	s.mu.Unlock()
	s.hold(ctx, h)
}

// hold holds the connection to a holder until it ends.
func (s *sharing) hold(ctx context.Context, h holder) {
	for {
		_, file, err := h.conn.Receive(ctx)
		if file != nil {
			_ = file.Close()
		}
		if err != nil {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.holders, h); i >= 0 {
		s.holders = slices.Delete(s.holders, i, i+1)
		s.tellAll()
	}
}

// tellAll tells the holders of spares what kubelet said, and how many are newer. What
// was written outlives this process. Called with mu held.
func (s *sharing) tellAll() {
	for _, h := range s.holders {
		news := control.News{Kubelet: s.kubelet}
		for _, o := range s.holders {
			if o.started.After(h.started) {
				news.Newer++
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), tellFor)
		if err := h.conn.Send(ctx, news); err != nil {
			klog.V(2).InfoS("An instance that stands by was not told what kubelet said", "because", err.Error())
		}
		cancel()
	}
}

// heard takes in what kubelet said to this instance, before kubelet is answered.
func (s *sharing) heard(state control.KubeletState, words string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kubelet = control.Kubelet{State: state, Since: time.Now(), Words: words[:min(len(words), control.MaxWords)], NodeInfo: s.r.info.has()}
	s.tellAll()
}

// knows takes in which node info kubelet has.
func (s *sharing) knows(digest string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accepts && s.kubelet.NodeInfo != digest {
		s.kubelet.NodeInfo = digest
		s.tellAll()
	}
}

func (s *sharing) tellLoop(ctx context.Context, e shareEvent) {
	select {
	case s.events <- e:
	case <-ctx.Done():
	}
}

// ask asks Step, and waits for the answer.
func (s *sharing) ask(ctx context.Context, n own.News) own.Do {
	reply := make(chan own.Do, 1)
	s.tellLoop(ctx, shareEvent{news: n, reply: reply})
	select {
	case answer := <-reply:
		return answer
	case <-ctx.Done():
		return own.Defer
	}
}
