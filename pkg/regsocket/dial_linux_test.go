package regsocket

import (
	"context"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDialErrnos(t *testing.T) {
	p := newPlace(t, shortDir(t))
	_, err := p.Dial(context.Background())
	wantErr(t, err, syscall.ENOENT)
	wantDial(t, p.Path(), Absent)
	leave(t, p.Path())
	_, err = p.Dial(context.Background())
	wantErr(t, err, syscall.ECONNREFUSED)
	wantDial(t, p.Path(), Refused)
}

// L5: a full backlog says EAGAIN at once, however long ctx lasts.
func TestDialFullBacklog(t *testing.T) {
	p := newPlace(t, shortDir(t))
	fillBacklog(t, p.Path())
	wantDial(t, p.Path(), Busy)
}

// fillBacklog makes a socket at path whose backlog is full.
func fillBacklog(t *testing.T, path string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	check(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
	wantDial(t, path, Refused) // Bound, not listening.
	check(t, unix.Listen(fd, 0))
	conn, err := dial(context.Background(), path)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
}

// L5: a frozen process accepts connections; a killed one refuses.
func TestDialFrozenAndKilled(t *testing.T) {
	p := newPlace(t, shortDir(t))
	c := startChild(t, p.dir)
	c.must(t, "bind", "ok")
	c.must(t, "publish", "ok")
	check(t, c.cmd.Process.Signal(syscall.SIGSTOP))
	wantDial(t, p.Path(), Connected)
	dead := stat(t, p)
	c.kill()
	wantDial(t, p.Path(), Refused)
	if stat(t, p) != dead {
		t.Error("death changed the socket file")
	}
	check(t, p.Publish(bind(t, p), dead))
	wantDial(t, p.Path(), Connected)
}
