package regsocket

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Whoever sends a blocking one gets it non-blocking.
func TestAdoptMakesItNonBlocking(t *testing.T) {
	p := newPlace(t, shortDir(t))
	s := published(t, p)
	sp := spareOf(t, s)
	var err error
	check(t, sp.Control(func(fd uintptr) { err = unix.SetNonblock(int(fd), false) }))
	check(t, err)
	adopted, err := p.AdoptSpare(fileOf(t, sp), sp.ID())
	check(t, err)
	defer adopted.Close()
	wantNonBlocking(t, adopted)
}

// Each condition on what a peer sends; in every case it is closed.
func TestAdoptRefuses(t *testing.T) {
	p, other := newPlace(t, shortDir(t)), newPlace(t, shortDir(t))
	other.driver = "other.csi.k8s.io"
	for says, give := range map[string]func() any{
		"not a unix socket": func() any {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			check(t, err)
			return l
		},
		"not a stream socket": func() any {
			c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: temp(p, "00112233"), Net: "unixgram"})
			check(t, err)
			return c
		},
		"not listening": func() any {
			s := published(t, p)
			ended := greet(s, "x")
			conn, err := p.Dial(context.Background())
			check(t, err)
			check(t, s.Close())
			<-ended
			return conn
		},
		"another socket": func() any {
			l, err := net.Listen("unix", filepath.Join(p.dir, "x.sock"))
			check(t, err)
			return l
		},
		"another socket, not a registration socket of this driver": func() any { return bind(t, other) },
		"not a registration socket": func() any { // Abstract.
			l, err := net.Listen("unix", fmt.Sprintf("@%s%d", filepath.Base(p.dir), os.Getpid()))
			check(t, err)
			return l
		},
		"socket operation on non-socket": func() any {
			f, err := os.Open(os.DevNull)
			check(t, err)
			return f
		},
	} {
		t.Run(says, func(t *testing.T) {
			given := give()
			defer given.(io.Closer).Close()
			conn, err := given.(syscall.Conn).SyscallConn()
			check(t, err)
			file := fileOf(t, conn)
			before := openFiles(t)
			sp, err := p.AdoptSpare(file, ID{})
			if err == nil {
				_ = sp.Close()
			}
			wantWords(t, err, says, p.Path())
			if after := openFiles(t); after != before-1 {
				t.Errorf("%d descriptors are open, want %d", after, before-1)
			}
			wantErr(t, file.Close(), os.ErrClosed)
			if _, err := p.AdoptSpare(file, ID{}); err == nil {
				t.Error("a closed descriptor was adopted")
			}
		})
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return len(entries)
}

// A long path is bound through /proc/self/fd, which the descriptor remembers.
func TestAdoptFromALongPath(t *testing.T) {
	p := newPlace(t, longDir(t))
	s := published(t, p)
	sp, err := p.AdoptSpare(fileOf(t, spareOf(t, s)), s.ID())
	check(t, err)
	defer sp.Close()
	check(t, s.Close())
	ended := greet(listen(t, sp), "spare")
	wantGreeting(t, p, "spare")
	if len(ended) != 0 {
		t.Error("it has ended")
	}
}
