package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

// Each answer, at csi.sock and at the second name.
func TestProbe(t *testing.T) {
	for want, put := range map[Life]func(*testing.T, string){
		Listens: func(t *testing.T, path string) { listen(t, path) },
		Refuses: leave,
		Busy:    fillBacklog,
		Unclear: func(t *testing.T, path string) { // A driver's would be a stream.
			conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			check(t, err)
			t.Cleanup(func() { _ = conn.Close() })
		},
	} {
		t.Run(want.String(), func(t *testing.T) {
			n := newNames(t, shortDir(t))
			put(t, n.socket)
			id := read(t, n).Socket
			if got := n.Probe(id); got != Gone {
				t.Errorf("without its name: %v", got)
			}
			check(t, n.Pin(id))
			same := untouched(t, n.socket)
			if got := n.Probe(ID{}); got != want {
				t.Errorf("csi.sock: %v", got)
			}
			check(t, os.Remove(n.socket))
			if got := n.Probe(id); got != want {
				t.Errorf("second name: %v", got)
			}
			if got := n.Probe(ID{}); got != Gone {
				t.Errorf("no csi.sock: %v", got)
			}
			check(t, os.Link(n.Path(id), n.socket))
			same()
		})
	}
}

// fillBacklog makes a socket at path whose backlog is full (L5).
func fillBacklog(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	check(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	check(t, unix.Listen(fd, 0))
	conn, err := net.Dial("unix", path)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
}

// A csi.sock that is no socket refuses, as connect(2) says.
func TestProbeWhatIsNoSocket(t *testing.T) {
	n := newNames(t, shortDir(t))
	check(t, os.WriteFile(n.socket, nil, 0o600))
	if got := n.Probe(ID{}); got != Refuses {
		t.Errorf("got %v", got)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return len(entries)
}

// Proves that no probe leaves a connection, a byte or a descriptor, on either
// side.
func TestTenThousandProbes(t *testing.T) {
	n := newNames(t, shortDir(t))
	id, l := pinned(t, n)
	before := descriptors(t)
	var wait sync.WaitGroup
	accepted, odd := 0, 0
	wait.Go(func() {
		for { // Until somebody says something, which the last one does.
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted++
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			heard, err := conn.Read(make([]byte, 1))
			_ = conn.Close()
			if heard != 0 {
				return
			}
			if !errors.Is(err, io.EOF) {
				odd++
			}
		}
	})
	reached, start := 0, time.Now()
	for i := range 10000 {
		which := ID{}
		if i%2 == 0 {
			which = id
		}
		switch got := n.Probe(which); got {
		case Listens:
			reached++
		case Busy: // The test accepts too slowly.
		default:
			t.Fatalf("probe %d: %v", i, got)
		}
	}
	took := time.Since(start)
	last, err := n.Dial(t.Context(), id)
	for errors.Is(err, unix.EAGAIN) {
		last, err = n.Dial(t.Context(), id)
	}
	check(t, err)
	_, err = last.Write([]byte("x"))
	check(t, err)
	wait.Wait()
	check(t, last.Close())
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
	if odd != 0 || accepted != reached+1 {
		t.Errorf("of %d connections %d did not end by themselves; %d probes reached somebody", accepted, odd, reached)
	}
	t.Logf("10000 probes took %v, %d reached somebody", took, reached)
}

// L4: a gRPC server that stops waits for a connection that says nothing. Probes
// leave none, whenever they come.
func TestProbesDoNotDelayAGracefulStop(t *testing.T) {
	n := newNames(t, shortDir(t))
	for range 5 {
		server := startGRPC(t, n)
		for range 200 {
			if got := n.Probe(server.id); got != Listens {
				t.Fatalf("probe: %v", got)
			}
		}
		for range 200 {
			<-server.heard // All are with the server.
		}
		start := time.Now()
		stopped := server.stop()
		for ended := false; !ended; { // And while it stops.
			select {
			case <-stopped:
				ended = true
			default:
				n.Probe(server.id)
				n.Probe(ID{})
			}
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the stop took %v", took)
		}
		check(t, n.Remove(server.id))
		check(t, os.Remove(n.socket))
	}

	// What the test would see: a connection that is held does delay it.
	server := startGRPC(t, n)
	held, err := n.Dial(t.Context(), server.id)
	check(t, err)
	<-server.heard
	stopped := server.stop()
	select {
	case <-stopped:
		t.Error("a held connection does not delay a stop any more, so this test proves nothing")
	case <-time.After(300 * time.Millisecond):
	}
	check(t, held.Close())
	<-stopped
}

// grpcServer is a driver with a gRPC server. heard gets a value for each
// connection from which it has begun to read.
type grpcServer struct {
	net.Listener
	*grpc.Server
	id    ID
	heard chan struct{}
}

func startGRPC(t *testing.T, n *Names) *grpcServer {
	t.Helper()
	id, l := pinned(t, n)
	s := &grpcServer{Listener: l, Server: grpc.NewServer(), id: id, heard: make(chan struct{}, 1e6)}
	served := make(chan error, 1)
	go func() { served <- s.Serve(s) }()
	t.Cleanup(func() {
		s.Stop()
		check(t, <-served)
	})
	return s
}

func (s *grpcServer) stop() (stopped chan struct{}) {
	stopped = make(chan struct{})
	go func() {
		s.GracefulStop()
		close(stopped)
	}()
	return stopped
}

func (s *grpcServer) Accept() (net.Conn, error) {
	conn, err := s.Listener.Accept()
	return &heardConn{Conn: conn, heard: s.heard}, err
}

type heardConn struct {
	net.Conn
	once  sync.Once
	heard chan struct{}
}

func (c *heardConn) Read(b []byte) (int, error) {
	c.once.Do(func() { c.heard <- struct{}{} })
	return c.Conn.Read(b)
}

// Every call gives its descriptors back.
func TestNoDescriptorIsLost(t *testing.T) {
	n, _ := longNames(t)
	id := read(t, n).Socket
	wrong := ID{id.Dev, id.Ino, id.Made + 1}
	check(t, n.Turn(noLink, toSocket))
	before := descriptors(t)
	for range 20 {
		wantErr(t, n.Pin(wrong), ErrChanged)
		at(n, "judged", func() { check(t, os.Mkdir(n.Path(id), 0o700)) })
		wantErr(t, n.Pin(id), ErrForeign)
		n.seams.at = func(string) {}
		check(t, os.Remove(n.Path(id)))
		check(t, n.Pin(id))
		for _, which := range []ID{{}, id, wrong} {
			n.Probe(which)
			if conn, err := n.Dial(t.Context(), which); err == nil {
				check(t, conn.Close())
			}
		}
		check(t, n.Turn(toSocket, toSocket))
		check(t, n.Remove(id))
		_, err := n.Sweep(0)
		check(t, err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
}

// Proves SOCK_CLOEXEC and O_CLOEXEC: a process started meanwhile must not keep a
// connection to a driver.
func TestCloseOnExec(t *testing.T) {
	n := newNames(t, shortDir(t))
	listen(t, n.socket)
	id := read(t, n).Socket
	steps := 0
	n.seams.at = func(step string) {
		steps++
		entries, err := os.ReadDir("/proc/self/fd")
		check(t, err)
		for _, entry := range entries {
			target, _ := os.Readlink("/proc/self/fd/" + entry.Name())
			if !strings.HasPrefix(target, "socket:") && !strings.HasPrefix(target, n.dir) {
				continue
			}
			fd, err := strconv.Atoi(entry.Name())
			check(t, err)
			flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			check(t, err)
			if flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("%s: %s would be inherited", step, target)
			}
		}
	}
	check(t, n.Pin(id))
	n.Probe(id)
	n.Probe(ID{})
	if steps != 3 {
		t.Errorf("%d steps", steps)
	}
}

// longNames are names whose paths all have more than 107 bytes, csi.sock's
// included, with a driver that nevertheless has bound.
func longNames(t *testing.T) (*Names, *net.UnixListener) {
	t.Helper()
	dir := filepath.Join(shortDir(t), strings.Repeat("d", 120))
	check(t, os.Mkdir(dir, 0o755))
	short, err := os.Open(dir)
	check(t, err)
	defer short.Close()
	return newNames(t, dir), listen(t, fmt.Sprintf("/proc/self/fd/%d/csi.sock", short.Fd()))
}

// L7: a path of any length will do here.
func TestLongPaths(t *testing.T) {
	n, l := longNames(t)
	id := read(t, n).Socket
	for _, which := range []ID{{}, id} {
		check(t, n.Pin(id))
		if got := n.Probe(which); got != Listens {
			t.Errorf("probe: %v", got)
		}
		conn, err := n.Dial(t.Context(), which)
		wantReaches(t, l, conn, err)
	}
	check(t, n.Turn(noLink, toName(id)))
	check(t, n.Turn(toName(id), toSocket))
	check(t, os.Remove(n.socket))
	if got := n.Probe(ID{}); got != Gone {
		t.Errorf("probe: %v", got)
	}
}

// The lengths around the limit: csi.sock fits, its other names do or do not.
func TestPathsAroundTheLimit(t *testing.T) {
	for length := maxPath - 20; length <= maxPath; length++ {
		dir := shortDir(t)
		dir = filepath.Join(dir, strings.Repeat("d", length-len(dir)-len("//csi.sock")))
		check(t, os.Mkdir(dir, 0o755))
		n := newNames(t, dir)
		if len(n.socket) != length {
			t.Fatalf("the test's path has %d bytes", len(n.socket))
		}
		id, l := pinned(t, n)
		for _, which := range []ID{{}, id} {
			if got := n.Probe(which); got != Listens {
				t.Errorf("%d bytes: %v", length, got)
			}
			conn, err := n.Dial(t.Context(), which)
			wantReaches(t, l, conn, err)
		}
	}
}

// Proves that Dial says what Probe does, and that its words are the same each
// time: callers tell news by them.
func TestDialErrors(t *testing.T) {
	n := newNames(t, shortDir(t))
	_, err := n.Dial(t.Context(), ID{})
	wantErr(t, err, unix.ENOENT)
	leave(t, n.socket)
	id := read(t, n).Socket
	check(t, n.Pin(id))
	_, err = n.Dial(t.Context(), ID{})
	wantErr(t, err, unix.ECONNREFUSED)
	_, err = n.Dial(t.Context(), id)
	wantErr(t, err, unix.ECONNREFUSED)
	if want := "connect to " + n.Path(id) + ": connect: connection refused"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = n.Dial(ctx, id)
	wantErr(t, err, context.Canceled)
	check(t, os.Remove(n.Path(id)))
	check(t, os.Remove(n.socket))
	fillBacklog(t, n.socket)
	id = read(t, n).Socket
	check(t, n.Pin(id))
	_, err = n.Dial(t.Context(), id)
	wantErr(t, err, unix.EAGAIN)
}

// Proves that the inode that was judged is reached, whatever comes to the name.
func TestDialTheInodeThatWasJudged(t *testing.T) {
	n := newNames(t, shortDir(t))
	id, l := pinned(t, n)
	address, done, err := n.address(id)
	check(t, err)
	defer done()
	check(t, os.Remove(n.Path(id)))
	leave(t, n.Path(id))
	check(t, os.Remove(n.socket))
	conn, err := net.Dial("unix", address)
	wantReaches(t, l, conn, err)
}
