package endpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What happens to csi.sock between the last look and the link: a name that lies
// is never made.
func TestSocketReplacedBeforeTheLink(t *testing.T) {
	for name, act := range map[string]func(*testing.T, *Names){
		"bind by rename":  func(t *testing.T, n *Names) { another(t, n) },
		"unlink and bind": func(t *testing.T, n *Names) { check(t, os.Remove(n.socket)); listen(t, n.socket) },
		"a regular file": func(t *testing.T, n *Names) {
			check(t, os.Remove(n.socket))
			check(t, os.WriteFile(n.socket, []byte("precious"), 0o600))
		},
		"a symbolic link": func(t *testing.T, n *Names) {
			check(t, os.Remove(n.socket))
			check(t, os.Symlink(n.socket+".to", n.socket))
		},
		"unlink": func(t *testing.T, n *Names) { check(t, os.Remove(n.socket)) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNames(t, shortDir(t))
			listen(t, n.socket)
			id := read(t, n).Socket
			at(n, "judged", func() { act(t, n) })
			wantErr(t, n.Pin(id), ErrChanged)
			if others := read(t, n).Others; len(others) != 0 {
				t.Fatalf("pinned %v", others)
			}
			wantAbsent(t, n.Path(id))
		})
	}
}

// L9: a socket that has moved but keeps a name can be pinned, by what was
// judged.
func TestSocketMovedBeforeTheLink(t *testing.T) {
	n := newNames(t, shortDir(t))
	l := listen(t, n.socket)
	id := read(t, n).Socket
	at(n, "judged", func() {
		check(t, os.Rename(n.socket, n.socket+".old"))
		listen(t, n.socket)
	})
	check(t, n.Pin(id))
	if others := read(t, n).Others; len(others) != 1 || others[0] != id {
		t.Fatalf("pinned %v, want %v", others, id)
	}
	conn, err := n.Dial(t.Context(), id)
	wantReaches(t, l, conn, err)
}

// What comes to the second name between the last look and the link.
func TestSecondNameMadeBeforeTheLink(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(*testing.T, *Names, string)
		want error
	}{
		"by a peer":     {func(t *testing.T, n *Names, path string) { check(t, os.Link(n.socket, path)) }, nil},
		"by a liar":     {func(t *testing.T, n *Names, path string) { leave(t, path) }, ErrForeign},
		"by a stranger": {func(t *testing.T, n *Names, path string) { check(t, os.Mkdir(path, 0o700)) }, ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNames(t, shortDir(t))
			listen(t, n.socket)
			id := read(t, n).Socket
			var same func()
			at(n, "judged", func() {
				c.act(t, n, n.Path(id))
				same = untouched(t, n.Path(id))
			})
			wantErr(t, n.Pin(id), c.want)
			same()
		})
	}
}

// A second name that a peer made and removed again is for the next look.
func TestSecondNameMadeAndRemoved(t *testing.T) {
	n := newNames(t, shortDir(t))
	listen(t, n.socket)
	id := read(t, n).Socket
	n.seams.at = func(step string) {
		if step == "judged" {
			check(t, os.Link(n.socket, n.Path(id)))
		} else {
			check(t, os.Remove(n.Path(id)))
		}
	}
	wantErr(t, n.Pin(id), ErrChanged)
	wantRead(t, n, Listing{Socket: id})
}

// What happens to the link between the temporary name and the rename.
func TestLinkChangedBeforeTheTurn(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(*testing.T, *Names)
		link string // What the link says then; empty if it is none.
		want error
	}{
		"turned by a peer":    {func(t *testing.T, n *Names) { point(t, n, ".csi.sock.1") }, ".csi.sock.1", ErrChanged},
		"turned by the other": {func(t *testing.T, n *Names) { point(t, n, "../csi.sock") }, "../csi.sock", ErrForeign},
		"removed":             {func(t *testing.T, n *Names) { check(t, os.Remove(n.link)) }, "", ErrChanged},
		"a regular file": {func(t *testing.T, n *Names) {
			check(t, os.Remove(n.link))
			check(t, os.WriteFile(n.link, []byte("precious"), 0o600))
		}, "", ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNames(t, shortDir(t))
			id, _ := pinned(t, n)
			check(t, n.Turn(noLink, toSocket))
			entries := 0
			at(n, "linked", func() {
				c.act(t, n)
				entries = count(t, n.dir)
			})
			wantErr(t, n.Turn(toSocket, toName(id)), c.want)
			wantLink(t, n, c.link)
			if got := count(t, n.dir); got != entries-1 {
				t.Fatalf("%d entries, want the temporary name gone of %d", got, entries)
			}
		})
	}
}

// Proves that another second name is another target.
func TestTurnFromAnotherName(t *testing.T) {
	n := newNames(t, shortDir(t))
	old, _ := pinned(t, n)
	young := another(t, n)
	check(t, n.Pin(young))
	check(t, n.Turn(noLink, toName(old)))
	wantErr(t, n.Turn(toName(young), toSocket), ErrChanged)
	wantErr(t, n.Turn(toName(ID{}), toSocket), ErrChanged)
	wantLink(t, n, filepath.Base(n.Path(old)))
	check(t, n.Turn(toName(ID{Ino: old.Ino}), toName(young))) // Of from only the name counts.
	wantRead(t, n, Listing{Socket: young, Others: read(t, n).Others, Named: true, Link: toName(young)})
}

// point makes the link say text.
func point(t *testing.T, n *Names, text string) {
	t.Helper()
	check(t, os.Remove(n.link))
	check(t, os.Symlink(text, n.link))
}

func count(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	return len(entries)
}

// Where no link was judged, one that a peer made stays, and one that is away
// again is for the next look.
func TestLinkMadeBeforeTheFirstTurn(t *testing.T) {
	n := newNames(t, shortDir(t))
	id, _ := pinned(t, n)
	check(t, os.Symlink("csi.sock", n.link))
	wantErr(t, n.Turn(noLink, toName(id)), ErrChanged)
	wantLink(t, n, "csi.sock")
	at(n, "exists", func() { check(t, os.Remove(n.link)) })
	wantErr(t, n.Turn(noLink, toName(id)), ErrChanged)
	wantOnly(t, n.dir, filepath.Base(n.Path(id)), "csi.sock")
}

// A peer's Sweep, or a hand, takes the temporary name of a frozen instance. That
// is no gone directory.
func TestTemporaryNameTakenAway(t *testing.T) {
	n := newNames(t, shortDir(t))
	id, _ := pinned(t, n)
	check(t, n.Turn(noLink, toSocket))
	peer := newNames(t, n.dir)
	at(n, "judged", func() {
		removed, err := peer.Sweep(0)
		check(t, err)
		if len(removed) != 1 {
			t.Fatalf("swept %q", removed)
		}
	})
	wantErr(t, n.Turn(toSocket, toName(id)), ErrChanged)
	wantLink(t, n, "csi.sock")
}

// Proves that only our own temporary name is taken away after an error.
func TestAnotherUnderTheTemporaryName(t *testing.T) {
	n := newNames(t, shortDir(t))
	id, _ := pinned(t, n)
	check(t, n.Turn(noLink, toSocket))
	var same func()
	at(n, "linked", func() {
		temps, err := filepath.Glob(filepath.Join(n.dir, ".*.tmp"))
		check(t, err)
		check(t, os.Remove(temps[0]))
		check(t, os.WriteFile(temps[0], []byte("precious"), 0o600))
		same = untouched(t, temps[0])
		point(t, n, ".csi.sock.1")
	})
	wantErr(t, n.Turn(toSocket, toName(id)), ErrChanged)
	same()
}

// The windows that nothing closes: what comes between the last look and the
// system call is replaced or removed, but a directory, which the kernel keeps.
// Pinned here so that a change of it is noticed; a different outcome would be
// better.
func TestTheWindows(t *testing.T) {
	n := newNames(t, shortDir(t))
	id, _ := pinned(t, n)
	check(t, n.Turn(noLink, toSocket))
	at(n, "judged", func() { point(t, n, "../elsewhere") })
	check(t, n.Turn(toSocket, toName(id)))
	wantLink(t, n, filepath.Base(n.Path(id)))

	at(n, "judged", func() {
		check(t, os.Remove(n.link))
		check(t, os.Mkdir(n.link, 0o700))
	})
	wantErr(t, n.Turn(toName(id), toSocket), unix.EISDIR)
	wantOnly(t, n.dir, n.LinkName(), filepath.Base(n.Path(id)), "csi.sock")

	at(n, "judged", func() {
		check(t, os.Remove(n.Path(id)))
		leave(t, n.Path(id))
	})
	check(t, n.Remove(id))
	wantAbsent(t, n.Path(id))

	at(n, "judged", func() {})
	check(t, n.Pin(id))
	at(n, "judged", func() {
		check(t, os.Remove(n.Path(id)))
		check(t, os.Mkdir(n.Path(id), 0o700))
	})
	wantErr(t, n.Remove(id), unix.EISDIR)
	wantOnly(t, n.dir, n.LinkName(), filepath.Base(n.Path(id)), "csi.sock")
}

// Two who remove: the second finds nothing, which is no error.
func TestRemovedByAPeer(t *testing.T) {
	n := newNames(t, shortDir(t))
	id, _ := pinned(t, n)
	at(n, "judged", func() { check(t, os.Remove(n.Path(id))) })
	check(t, n.Remove(id))
	wantOnly(t, n.dir, "csi.sock")
}

// A driver comes and goes as fast as it can: no second name ever lies, and none of
// the driver's binds finds anything in its way.
func TestPinsBesideARestlessDriver(t *testing.T) {
	n := newNames(t, shortDir(t))
	stop := make(chan struct{})
	done := make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			l, err := listenQuietly(n.socket)
			if err != nil {
				done <- fmt.Errorf("the driver: %w", err)
				return
			}
			_ = os.Remove(n.socket)
			_ = l()
		}
	}()
	made := 0
	for range 3000 {
		l, err := n.Read()
		check(t, err)
		if l.Socket == (ID{}) {
			continue
		}
		if n.Pin(l.Socket) == nil {
			made++
		}
		l, err = n.Read()
		check(t, err)
		for _, id := range l.Others {
			check(t, n.Remove(id))
		}
		if names := secondNames(t, n); len(names) != 0 {
			t.Fatalf("left: %q", names)
		}
	}
	close(stop)
	check(t, <-done)
	t.Logf("%d pins of 3000 were in time", made)
}

// listenQuietly is a driver without a test.
func listenQuietly(path string) (closed func() error, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, err
	}
	return func() error { return unix.Close(fd) }, unix.Listen(fd, 1)
}

func secondNames(t *testing.T, n *Names) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(n.dir, ".csi.sock.*"))
	check(t, err)
	return names
}

func wantAbsent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Fatalf("%s is there (%v)", path, err)
	}
}
