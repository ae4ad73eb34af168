package control

import (
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// newPlace is in a directory with a path that leaves room for a socket's.
func newPlace(t *testing.T) *Place {
	t.Helper()
	dir, err := os.MkdirTemp("", "ctl")
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p, err := New(dir, driver)
	check(t, err)
	return p
}

func listen(t *testing.T, p *Place, pid int) *Listener {
	t.Helper()
	l, err := p.listen(p.name(1, pid))
	check(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// soon is a ctx for what must happen, only when the machine is busy not at once.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func dial(t *testing.T, p *Place, l *Listener) *Conn {
	t.Helper()
	c, err := p.Dial(soon(t), l.Name())
	check(t, err)
	t.Cleanup(c.Close)
	return c
}

// pair is a connection whose Hello has been received, from both sides.
func pair(t *testing.T) (dialer, accepter *Conn) {
	t.Helper()
	p := newPlace(t)
	l := listen(t, p, 1)
	dialer = dial(t, p, l)
	check(t, dialer.Send(soon(t), Hello{Instance: "a"}))
	accepter, hello, err := l.Accept(soon(t))
	check(t, err)
	t.Cleanup(accepter.Close)
	if hello.Instance != "a" {
		t.Fatalf("got %+v", hello)
	}
	return dialer, accepter
}

// rawDial connects without a Conn.
func rawDial(t *testing.T, l *Listener) *net.UnixConn {
	t.Helper()
	conn, err := net.Dial("unix", l.path)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	check(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	return conn.(*net.UnixConn)
}

func wantOnly(t *testing.T, p *Place, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(p.dir)
	check(t, err)
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("the directory holds %q, want %q", got, want)
	}
}

func wantDone(t *testing.T, c *Conn) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the end was not noticed")
	}
}

func wantEnd(t *testing.T, c *Conn, want error) {
	t.Helper()
	_, _, err := c.Receive(soon(t))
	wantErr(t, err, want)
	wantDone(t, c)
}

// nobodyComes says that Accept has nothing.
func nobodyComes(t *testing.T, l *Listener) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	c, hello, err := l.Accept(ctx)
	if err == nil {
		c.Close()
		t.Fatalf("accepted %+v", hello)
	}
	wantErr(t, err, context.DeadlineExceeded)
}

// leave leaves a socket at path on which nobody listens.
func leave(t *testing.T, path string) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	check(t, err)
	listener.SetUnlinkOnClose(false)
	check(t, listener.Close())
}

// Proves the chmod, and that it comes before listen.
func TestPrivateBeforeAnyoneCanConnect(t *testing.T) {
	p := newPlace(t)
	steps := 0
	p.at = func(step string) {
		steps++
		names, err := p.Names()
		check(t, err)
		if _, refused := p.refuses(soon(t), names[0]); !refused {
			t.Errorf("%s: somebody can connect", step)
		}
		info, err := os.Lstat(p.path(names[0]))
		check(t, err)
		if step == "private" && info.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("mode %v before listen", info.Mode())
		}
	}
	l, err := p.Listen(os.Getpid())
	check(t, err)
	if own, err := p.ownName(os.Getpid()); err != nil || l.Name() != own || !p.isName(own) {
		t.Errorf("it is called %s, want %s (%v)", l.Name(), own, err)
	}
	if steps != 2 {
		t.Errorf("%d steps", steps)
	}
	_, err = p.Listen(os.Getpid())
	wantErr(t, err, ErrInUse)
	dial(t, p, l)
	wantOnly(t, p, l.Name())
	check(t, l.Close())
	wantOnly(t, p)
	wantErr(t, l.Close(), net.ErrClosed)
	_, _, err = l.Accept(soon(t))
	wantErr(t, err, net.ErrClosed)
}

// What a killed process of the same name has left is replaced.
func TestLeftoverIsReplaced(t *testing.T) {
	p := newPlace(t)
	leave(t, p.path(p.name(1, 1)))
	dial(t, p, listen(t, p, 1))
}

// Nothing but a dead socket is replaced.
func TestSomethingElseInTheWay(t *testing.T) {
	p := newPlace(t)
	path := p.path(p.name(1, 1))
	for name, put := range map[string]func(){
		"a file":      func() { check(t, os.WriteFile(path, nil, 0o600)) },
		"a directory": func() { check(t, os.Mkdir(path, 0o700)) },
		"a link": func() {
			leave(t, path+".to")
			check(t, os.Symlink(path+".to", path))
		},
	} {
		put()
		before, err := os.Lstat(path)
		check(t, err)
		_, err = p.listen(p.name(1, 1))
		wantErr(t, err, ErrNotSocket)
		after, err := os.Lstat(path)
		check(t, err)
		if !os.SameFile(before, after) {
			t.Errorf("%s was touched", name)
		}
		check(t, os.Remove(path))
	}
	_, err := p.listen("absent/" + p.name(1, 1))
	wantErr(t, err, fs.ErrNotExist)
}

// Close and a failure remove our own name only.
func TestAnotherHasTheNameByNow(t *testing.T) {
	p := newPlace(t)
	l := listen(t, p, 1)
	check(t, os.Remove(l.path))
	leave(t, l.path)
	check(t, l.Close())
	wantOnly(t, p, l.Name())
	check(t, os.Remove(l.path))

	for _, step := range []string{"bound", "private"} {
		p.at = func(reached string) {
			if reached == step {
				check(t, os.Remove(l.path))
				leave(t, l.path)
			}
		}
		if _, err := p.listen(l.Name()); err == nil || !strings.Contains(err.Error(), "took its name away") {
			t.Errorf("%s: %v", step, err)
		}
		wantOnly(t, p, l.Name())
		check(t, os.Remove(l.path))
	}
	p.at = func(reached string) {
		if reached == "bound" {
			check(t, os.Remove(l.path))
		}
	}
	_, err := p.listen(l.Name())
	wantErr(t, err, fs.ErrNotExist)
	wantOnly(t, p)
}

// L7 of the design: what does not fit into an address goes through /proc.
func TestLongPath(t *testing.T) {
	p := newPlace(t)
	p.dir = filepath.Join(p.dir, strings.Repeat("d", 100))
	check(t, os.Mkdir(p.dir, 0o755))
	before := openFiles(t)
	p.at = func(string) { wantCloseOnExec(t) }
	l, err := p.Listen(os.Getpid())
	check(t, err)
	c := dial(t, p, l)
	wantCloseOnExec(t)
	check(t, c.Send(soon(t), Hello{Instance: "a"}))
	accepted, _, err := l.Accept(soon(t))
	check(t, err)
	accepted.Close()
	c.Close()
	check(t, l.Close())
	wantOnly(t, p)
	if after := openFiles(t); after != before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
	p.driver = strings.Repeat("d", 120)
	_, err = p.Listen(os.Getpid())
	wantErr(t, err, unix.ENAMETOOLONG)
}

func TestDialRefuses(t *testing.T) {
	p := newPlace(t)
	l := listen(t, p, 1)
	for _, name := range []string{"", l.path, "../" + filepath.Base(p.dir) + "/" + l.Name(), l.Name() + "x", ".x-reg.1.1.ctl"} {
		_, err := p.Dial(soon(t), name)
		wantErr(t, err, ErrName)
	}
	_, err := p.Dial(soon(t), p.name(1, 2))
	wantErr(t, err, unix.ENOENT)
	leave(t, p.path(p.name(1, 2)))
	_, err = p.Dial(soon(t), p.name(1, 2))
	wantErr(t, err, unix.ECONNREFUSED)
}

// L5: who has bound, listens and never accepts has a full queue at some time.
func TestDialFullBacklog(t *testing.T) {
	p := newPlace(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	defer unix.Close(fd)
	check(t, unix.Bind(fd, &unix.SockaddrUnix{Name: p.path(p.name(1, 1))}))
	check(t, unix.Listen(fd, 0))
	first, err := p.Dial(soon(t), p.name(1, 1))
	check(t, err)
	defer first.Close()
	_, err = p.Dial(soon(t), p.name(1, 1))
	wantErr(t, err, unix.EAGAIN)
	removed, err := p.Sweep(soon(t))
	if err != nil || len(removed) != 0 {
		t.Errorf("swept %q, %v", removed, err)
	}
}

// Another user's process is not spoken to, whichever side it is on.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	p := newPlace(t)
	check(t, os.Chmod(p.dir, 0o777))
	l := listen(t, p, 1)
	nobody := startChild(t, p.dir)
	nobody.must(t, "setuid 65534", "ok")
	nobody.must(t, "dial "+l.Name(), "connect to "+l.path+": dial unix "+l.path+": connect: permission denied")
	check(t, os.Chmod(l.path, 0o666)) // Somebody has opened it.
	nobody.must(t, "dial "+l.Name(), "connect to "+l.path+": the process there runs as another user: 0, and 65534 here")
	nobody.must(t, "raw "+l.path, "true")
	nobodyComes(t, l)

	_, err := p.Dial(soon(t), nobody.ask(t, "listen"))
	wantErr(t, err, ErrStranger)
}

func TestListenerCloseDropsWhoWaits(t *testing.T) {
	p := newPlace(t)
	l := listen(t, p, 1)
	taken := dial(t, p, l)
	check(t, taken.Send(soon(t), Hello{}))
	c, _, err := l.Accept(soon(t))
	check(t, err)
	defer c.Close()
	silent, greeted := dial(t, p, l), dial(t, p, l)
	check(t, greeted.Send(soon(t), Hello{}))
	for ctx := soon(t); len(l.greeted) == 0 && ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	check(t, l.Close())
	if took := time.Since(began); took > helloWithin/2 {
		t.Errorf("Close took %v", took)
	}
	wantDone(t, silent)
	wantDone(t, greeted)
	check(t, c.Send(soon(t), Publish{Reason: "I go"}))
	wantFrame(t, taken, Publish{Reason: "I go"})
}

// Proves that a failure after binding leaves nothing.
func TestListenLeavesNothing(t *testing.T) {
	p := newPlace(t)
	var limit unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	defer func() { check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	p.at = func(step string) {
		if step == "private" { // The listener's copy of the descriptor fails then.
			check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}))
		}
	}
	_, err := p.Listen(os.Getpid())
	wantErr(t, err, unix.EMFILE)
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	wantOnly(t, p)
}

// wantCloseOnExec says that no child would inherit a socket or a directory.
func wantCloseOnExec(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	for _, entry := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		if !strings.HasPrefix(target, "socket:") && !strings.Contains(target, "/ctl") {
			continue
		}
		fd, err := strconv.Atoi(entry.Name())
		check(t, err)
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		check(t, err)
		if flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d, %s, would be inherited", fd, target)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return len(entries)
}
