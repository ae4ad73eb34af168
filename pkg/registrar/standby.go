package registrar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/pkg/control"
	own "github.com/holdfast-csi/node-driver-registrar/pkg/ownership"
	"github.com/holdfast-csi/node-driver-registrar/pkg/registration"
	"github.com/holdfast-csi/node-driver-registrar/pkg/regsocket"

	"k8s.io/klog/v2"
)

// hello is what this instance says first.
func (s *sharing) hello(wants control.Wish, endpoint string) control.Hello {
	return control.Hello{
		Wants: wants, Instance: s.self.Instance, Release: s.self.Version, Host: s.self.Host, Started: s.self.Started,
		Driver: s.sockets.Driver(), Endpoint: endpoint, Versions: []string{"1.0.0"},
	}
}

// adopt asks the acceptor for its listener. The spare it returns is of the listener at
// the path; accepted has to be called once this instance accepts on it.
func (s *sharing) adopt(ctx context.Context, acceptor registration.Identity, endpoint string) (*regsocket.Spare, *control.Conn, control.Kubelet, error) {
	ctx, cancel := context.WithTimeout(ctx, adoptFor)
	defer cancel()
	hello := s.hello(control.WantsListener, endpoint)
	digest, of, err := s.r.info.now(ctx)
	if err != nil {
		return nil, nil, control.Kubelet{}, fmt.Errorf("its node info is not known: %w", err)
	}
	hello.NodeInfo, hello.Inode = digest, control.DriverInode{Dev: of.Dev, Ino: of.Ino, Made: of.Made}
	return s.obtain(ctx, acceptor.Control, hello)
}

// errAgain says that another look will find another acceptor.
var errAgain = errors.New("look again")

// obtain asks the instance with that control socket for a copy of its listener.
func (s *sharing) obtain(ctx context.Context, name string, hello control.Hello) (*regsocket.Spare, *control.Conn, control.Kubelet, error) {
	conn, err := s.place.Dial(ctx, name)
	if err != nil {
		return nil, nil, control.Kubelet{}, ended(ctx, err)
	}
	spare, kubelet, err := s.converse(ctx, conn, hello)
	if err != nil {
		conn.Close()
		return nil, nil, control.Kubelet{}, ended(ctx, err)
	}
	return spare, conn, kubelet, nil
}

// ended makes an end of the peer, which answered a moment ago, a reason to look again.
func ended(ctx context.Context, err error) error {
	gone := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, fs.ErrNotExist) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	if ctx.Err() == nil && gone {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	return err
}

func (s *sharing) converse(ctx context.Context, conn *control.Conn, hello control.Hello) (*regsocket.Spare, control.Kubelet, error) {
	err := conn.Send(ctx, hello)
	for err == nil {
		var frame control.Frame
		var file *os.File
		if frame, file, err = conn.Receive(ctx); err != nil {
			break
		}
		switch f := frame.(type) {
		case control.Publish:
			err = errors.New(f.Reason)
			if f.Again {
				err = fmt.Errorf("%w: %s", errAgain, f.Reason)
			}
		case control.Ready:
			err = conn.Send(ctx, control.IsReady(f))
		case control.Handover:
			spare, err := s.atPath(file, regsocket.ID{Dev: f.Dev, Ino: f.Ino, Changed: f.Changed})
			return spare, f.Kubelet, err
		}
	}
	return nil, control.Kubelet{}, err
}

// accepting says so, and waits until the former acceptor has yielded. Meanwhile no call
// of kubelet's is answered, see holding.known.
func (s *sharing) accepting(ctx context.Context, conn *control.Conn) error {
	err := conn.Send(ctx, control.Accepting{})
	if err == nil {
		err = s.await(ctx, conn, control.Yielded{})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	return nil
}

// atPath makes a spare of a descriptor that was sent, if it is of what stands at the
// path.
func (s *sharing) atPath(file *os.File, id regsocket.ID) (*regsocket.Spare, error) {
	spare, err := s.sockets.AdoptSpare(file, id)
	if err != nil {
		return nil, err
	}
	there, err := s.sockets.Stat()
	if err == nil && !there.SameInode(id) {
		err = errors.New("another socket is at the path by now")
	}
	if err != nil {
		_ = spare.Close()
		return nil, err
	}
	return spare, nil
}

// becomes is told by the worker that this instance accepts on the listener of which
// spare is a copy. former is from whom it had it, if its conn is not nil.
func (s *sharing) becomes(ctx context.Context, spare *regsocket.Spare, endpoint string, kubelet control.Kubelet, former holder) {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.drop(spare)
	s.spare, s.accepts, s.endpoint, s.kubelet = spare, true, endpoint, kubelet
	s.acceptor, s.follows, s.newer = nil, "", 0
	s.endHolders()
	if former.conn != nil {
		s.holders = append(s.holders, former)
		s.tellAll()
		s.r.started.Go(func() {
			defer former.conn.Close()
			s.hold(ctx, former)
		})
	}
	s.mu.Unlock()
}

// moved is told by the worker that it has stopped accepting: the others, and this one,
// follow the newcomer, which answers kubelet from now on.
func (s *sharing) moved(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.giving
	s.giving = nil
	if g == nil || s.spare != g.spare { // it took too long, and the newcomer has given up: go on here
		s.accepts = false
		s.r.started.Go(func() { s.tellLoop(ctx, shareEvent{news: own.Orphaned}) })
		return
	}
	s.accepts, s.acceptor, s.follows, s.newer = false, g.conn, g.instance, 0
	s.endHolders()
	ctx, cancel := context.WithTimeout(ctx, tellFor)
	defer cancel()
	_ = g.conn.Send(ctx, control.Yielded{})
	close(g.yielded)
}

// endHolders sends the holders of spares to the new acceptor. Called with mu held.
func (s *sharing) endHolders() {
	for _, h := range s.holders {
		ctx, cancel := context.WithTimeout(context.Background(), tellFor)
		_ = h.conn.Send(ctx, control.Moved{})
		cancel()
		h.conn.Close()
	}
	s.holders = nil
}

// stopped is told that this instance does not accept any more, and has nothing to hand
// over.
func (s *sharing) stopped() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepts = false
	s.endHolders()
	s.drop(nil)
}

// stands is told which instance answers at the path, and with which endpoint: get a copy
// of its listener, if this instance would tell kubelet the same. Another endpoint ends
// with its pod.
func (s *sharing) stands(ctx context.Context, acceptor registration.Identity, endpoint string) {
	if s == nil || acceptor.Control == "" || endpoint != s.r.announces() {
		return
	}
	s.mu.Lock()
	known := s.closed || s.accepts || s.follows == acceptor.Instance
	if !known {
		s.follows = acceptor.Instance
	}
	s.mu.Unlock()
	if !known {
		s.r.started.Go(func() { s.subscribe(ctx, acceptor, endpoint) })
	}
}

// following says whether this instance hears what kubelet says to acceptor, as far as
// it can.
func (s *sharing) following(acceptor registration.Identity, endpoint string) bool {
	if s == nil || acceptor.Control == "" || endpoint != s.r.announces() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.follows == acceptor.Instance
}

func (s *sharing) subscribe(ctx context.Context, acceptor registration.Identity, endpoint string) {
	asking, cancel := context.WithTimeout(ctx, adoptFor)
	spare, conn, kubelet, err := s.obtain(asking, acceptor.Control, s.hello(control.WantsSpare, endpoint))
	if err == nil {
		err = conn.Send(asking, control.Accepting{})
	}
	cancel()
	s.mu.Lock()
	current := s.follows == acceptor.Instance && !s.accepts && !s.closed
	if err == nil && current {
		s.drop(spare)
		s.spare, s.acceptor, s.kubelet, s.endpoint = spare, conn, kubelet, endpoint
	} else if s.follows == acceptor.Instance {
		s.follows = "" // the next look tries again
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		klog.V(2).InfoS("No copy of the registration socket; a takeover will cost kubelet a second", "host", acceptor.Host, "because", err.Error())
		return
	case !current:
		_ = spare.Close()
		conn.Close()
		return
	}
	s.tellLoop(ctx, shareEvent{news: own.SpareHeld, kubelet: kubelet.State})
	defer conn.Close()
	s.follow(ctx, conn)
}

// follow hears the acceptor out until the connection ends, and succeeds it then.
func (s *sharing) follow(ctx context.Context, conn *control.Conn) {
	moved := false
	for {
		frame, file, err := conn.Receive(ctx)
		if file != nil {
			_ = file.Close()
		}
		if err != nil {
			break
		}
		switch f := frame.(type) {
		case control.News:
			s.mu.Lock()
			s.kubelet, s.newer = f.Kubelet, f.Newer
			s.mu.Unlock()
			s.tellLoop(ctx, shareEvent{kubelet: f.Kubelet.State})
		case control.Moved:
			moved = true
		}
	}
	s.mu.Lock()
	current := s.acceptor == conn
	newer := s.newer
	heir := !moved && newer == 0
	if current {
		s.acceptor, s.follows = nil, ""
		if !heir {
			s.kubelet = control.Kubelet{} // what kubelet says to another from now on is not heard
		}
	}
	s.mu.Unlock()
	if !current || ctx.Err() != nil {
		return
	}
	if !heir {
		s.tellLoop(ctx, shareEvent{kubelet: control.Quiet})
	}
	s.r.hint()
	if !moved {
		s.succeed(ctx, newer)
	}
}

// succeed accepts in the place of the acceptor that has ended, unless a newer holder
// does.
func (s *sharing) succeed(ctx context.Context, newer int) {
	if newer > 0 {
		pause(ctx, time.Duration(newer)*succeedAfter)
		if s.answered(ctx) {
			s.r.hint()
			return
		}
	}
	s.mu.Lock()
	orphan := s.acceptor == nil && s.spare != nil && !s.accepts && !s.closed
	s.mu.Unlock()
	if orphan && ctx.Err() == nil {
		s.tellLoop(ctx, shareEvent{news: own.Orphaned})
	}
}

// answered says whether anybody answers at the path.
func (s *sharing) answered(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, stepFor)
	defer cancel()
	peer, err := registration.Ask(ctx, s.sockets.Dial, false)
	if err == nil {
		peer.Close()
	}
	return err == nil
}

// drop closes the spare, unless it is the one to keep. Called with mu held.
func (s *sharing) drop(keep *regsocket.Spare) {
	if s.spare != nil && s.spare != keep {
		_ = s.spare.Close()
	}
	s.spare = nil
}

// holds is the spare, if it is of the listener with that inode; one that is not is
// closed, and lost.
func (s *sharing) holds(there regsocket.ID) (spare *regsocket.Spare, endpoint string, kubelet control.Kubelet, lost bool) {
	if s == nil {
		return nil, "", control.Kubelet{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spare == nil || s.accepts {
		return nil, "", control.Kubelet{}, false
	}
	if !s.spare.ID().SameInode(there) {
		s.drop(nil)
		return nil, "", control.Kubelet{}, true
	}
	return s.spare, s.endpoint, s.kubelet, false
}

// goodbye ends this instance's part.
func (s *sharing) goodbye() {
	if s == nil {
		return
	}
	_ = s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.accepts = true, false
	s.drop(nil)
	conns := []*control.Conn{}
	for _, h := range s.holders {
		conns = append(conns, h.conn)
	}
	if s.acceptor != nil {
		conns = append(conns, s.acceptor)
	}
	s.holders, s.acceptor = nil, nil
	for _, c := range conns {
		ctx, cancel := context.WithTimeout(context.Background(), tellFor/10)
		_ = c.Send(ctx, control.Goodbye{})
		cancel()
		c.Close()
	}
}
