package endpoint

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var (
	toSocket = Target{Kind: ToSocket}
	noLink   = Target{}
)

func toName(id ID) Target { return Target{Kind: ToName, ID: id} }

// listen is a driver that listens at path.
func listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	check(t, err)
	l.SetUnlinkOnClose(false)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// leave leaves a socket at path on which nobody listens.
func leave(t *testing.T, path string) {
	t.Helper()
	check(t, listen(t, path).Close())
}

// another puts a new driver's socket at csi.sock, another inode for sure.
func another(t *testing.T, n *Names) ID {
	t.Helper()
	listen(t, n.socket+".new")
	check(t, os.Rename(n.socket+".new", n.socket))
	return read(t, n).Socket
}

func read(t *testing.T, n *Names) Listing {
	t.Helper()
	l, err := n.Read()
	check(t, err)
	return l
}

// pinned is a new driver at csi.sock, which was absent, with its second name.
func pinned(t *testing.T, n *Names) (ID, *net.UnixListener) {
	t.Helper()
	l := listen(t, n.socket)
	id := read(t, n).Socket
	check(t, n.Pin(id))
	return id, l
}

// wantRead compares all but the words of SocketOdd.
func wantRead(t *testing.T, n *Names, want Listing) {
	t.Helper()
	got := read(t, n)
	if got.Socket != want.Socket || got.Link != want.Link || got.Named != want.Named ||
		(got.SocketOdd != nil) != (want.SocketOdd != nil) || !slices.Equal(got.Others, want.Others) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func wantLink(t *testing.T, n *Names, want string) {
	t.Helper()
	if got, err := os.Readlink(n.link); got != want {
		t.Fatalf("the link says %q (%v), want %q", got, err, want)
	}
}

// wantReaches proves that conn ends at l. Probes that wait there too say
// nothing.
func wantReaches(t *testing.T, l *net.UnixListener, conn net.Conn, err error) {
	t.Helper()
	check(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("x"))
	check(t, err)
	check(t, l.SetDeadline(time.Now().Add(20*time.Second)))
	for heard := 0; heard == 0; {
		accepted, err := l.Accept()
		check(t, err)
		heard, _ = accepted.Read(make([]byte, 1))
		check(t, accepted.Close())
	}
}

// untouched returns a check that what stands at path is still the same.
func untouched(t *testing.T, path string) func() {
	t.Helper()
	before, err := os.Lstat(path)
	check(t, err)
	return func() {
		t.Helper()
		after, err := os.Lstat(path)
		check(t, err)
		if !os.SameFile(before, after) || before.Mode() != after.Mode() || before.ModTime() != after.ModTime() {
			t.Fatalf("%s was touched", path)
		}
	}
}

func TestReadNothing(t *testing.T) {
	wantRead(t, newNames(t, shortDir(t)), Listing{})
}

// A surge as it is meant to go: each look, each name, and who answers.
func TestASurge(t *testing.T) {
	n := newNames(t, shortDir(t))
	old := listen(t, n.socket)
	check(t, os.Chmod(n.socket, 0o640))
	id := read(t, n).Socket
	wantRead(t, n, Listing{Socket: id})
	same := untouched(t, n.socket)
	check(t, n.Pin(id))
	check(t, n.Pin(id)) // It has it.
	same()              // Mode and time are the driver's.
	wantRead(t, n, Listing{Socket: id, Others: []ID{id}, Named: true})
	check(t, n.Turn(noLink, toSocket))
	wantLink(t, n, "csi.sock")
	wantRead(t, n, Listing{Socket: id, Others: []ID{id}, Named: true, Link: toSocket})
	kubelet := func() (net.Conn, error) { return net.Dial("unix", n.LinkPath()) }
	conn, err := kubelet()
	wantReaches(t, old, conn, err)

	check(t, os.Remove(n.socket)) // The new driver's start,
	young := listen(t, n.socket)  // which binds, and
	youngID := read(t, n).Socket
	wantRead(t, n, Listing{Socket: youngID, Others: []ID{id}, Link: toSocket})
	check(t, n.Pin(youngID))
	conn, err = kubelet()
	wantReaches(t, young, conn, err)
	check(t, os.Remove(n.socket)) // the old one's exit.
	check(t, old.Close())
	if _, err := kubelet(); err == nil {
		t.Fatal("kubelet still finds csi.sock")
	}
	check(t, n.Turn(toSocket, toName(youngID)))
	wantLink(t, n, filepath.Base(n.Path(youngID)))
	conn, err = kubelet()
	wantReaches(t, young, conn, err)
	conn, err = n.Dial(context.Background(), youngID)
	wantReaches(t, young, conn, err)
	if n.Probe(id) != Refuses || n.Probe(youngID) != Listens || n.Probe(ID{}) != Gone {
		t.Fatalf("the old %v, the young %v, csi.sock %v", n.Probe(id), n.Probe(youngID), n.Probe(ID{}))
	}
	check(t, n.Remove(id))
	check(t, n.Remove(id)) // Absent is no error.
	wantRead(t, n, Listing{Others: []ID{youngID}, Link: toName(youngID)})

	third := listen(t, n.socket)
	thirdID := read(t, n).Socket
	check(t, n.Turn(toName(youngID), toSocket))
	conn, err = kubelet()
	wantReaches(t, third, conn, err)
	check(t, n.Remove(youngID))
	wantRead(t, n, Listing{Socket: thirdID, Link: toSocket})
	wantOnly(t, n.dir, ".csi.sock.ep", "csi.sock")
}

// Proves that a link to a second name that is gone says the number only.
func TestLinkToNowhere(t *testing.T) {
	n := newNames(t, shortDir(t))
	id, _ := pinned(t, n)
	check(t, n.Turn(noLink, toName(id)))
	check(t, n.Remove(id))
	wantRead(t, n, Listing{Socket: id, Link: toName(ID{Ino: id.Ino})})
	wantErr(t, n.Turn(toName(id), toName(id)), ErrChanged) // Proves the look at the name it is to point to.
	check(t, n.Turn(toName(ID{Ino: id.Ino}), toSocket))
	wantLink(t, n, "csi.sock")
}

// Proves the order, and that a socket whose name lies is left out.
func TestNewestFirst(t *testing.T) {
	n := newNames(t, shortDir(t))
	var ids []ID
	for i := range 5 {
		id, _ := pinned(t, n)
		check(t, os.Remove(n.socket))
		id.Made = int64(i%3+1) * 1e9 // Two pairs of the same age.
		check(t, os.Chtimes(n.Path(id), time.Unix(0, id.Made), time.Unix(0, id.Made)))
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b ID) int {
		if a.Made != b.Made {
			return int(b.Made/1e9 - a.Made/1e9)
		}
		return int(b.Ino) - int(a.Ino)
	})
	check(t, os.Link(n.Path(ids[0]), n.Path(ID{Ino: ids[0].Ino + 1000})))
	wantRead(t, n, Listing{Others: ids})
}

// Made is the time of bind, whatever happens to the names and the mode.
func TestMadeStays(t *testing.T) {
	n := newNames(t, shortDir(t))
	id, _ := pinned(t, n)
	long := time.Unix(1, 5)
	check(t, os.Chtimes(n.socket, long, long))
	id.Made = long.UnixNano()
	check(t, os.Chmod(n.socket, 0o777))
	check(t, os.Rename(n.socket, n.socket+".moved"))
	check(t, os.Rename(n.socket+".moved", n.socket))
	check(t, n.Remove(id))
	check(t, n.Pin(id))
	wantRead(t, n, Listing{Socket: id, Others: []ID{id}, Named: true})
}

// L3: without a second name the number of a dead socket is given to the next.
func TestSecondNameKeepsTheNumber(t *testing.T) {
	n := newNames(t, shortDir(t))
	restart := func() ID {
		leave(t, n.socket)
		id := read(t, n).Socket
		check(t, os.Remove(n.socket))
		return id
	}
	reused := false
	for range 20 {
		one, next := restart(), restart()
		reused = reused || one.Ino == next.Ino
	}
	if !reused {
		t.Log("NOTE: this file system does not reuse inode numbers at once, so this proves little here")
	}
	seen := map[uint64]bool{}
	for range 20 {
		leave(t, n.socket)
		id := read(t, n).Socket
		check(t, n.Pin(id))
		check(t, os.Remove(n.socket))
		if seen[id.Ino] {
			t.Fatalf("inode %d again", id.Ino)
		}
		seen[id.Ino] = true
	}
}

// Proves that the whole ID counts: the number alone may be another's.
func TestAnotherOfTheSameNumber(t *testing.T) {
	n := newNames(t, shortDir(t))
	id, _ := pinned(t, n)
	for _, other := range []ID{
		{id.Dev, id.Ino, id.Made + 1}, {id.Dev + 1, id.Ino, id.Made},
	} {
		wantErr(t, n.Remove(other), ErrChanged)
		wantErr(t, n.Pin(other), ErrChanged)
		wantErr(t, n.Turn(noLink, toName(other)), ErrChanged)
		_, err := n.Dial(context.Background(), other)
		wantErr(t, err, ErrChanged)
		if got := n.Probe(other); got != Gone {
			t.Errorf("probe: %v", got)
		}
		check(t, os.Remove(n.Path(id)))
		wantErr(t, n.Pin(other), ErrChanged) // Also by csi.sock alone.
		check(t, n.Pin(id))
	}
	wantRead(t, n, Listing{Socket: id, Others: []ID{id}, Named: true})
}

// Proves that nothing is done to csi.sock for want of an ID.
func TestNothingJudged(t *testing.T) {
	n := newNames(t, shortDir(t))
	leave(t, n.socket)
	same := untouched(t, n.socket)
	for _, id := range []ID{{}, {Dev: 1}} {
		wantErr(t, n.Pin(id), ErrChanged)
		wantErr(t, n.Remove(id), ErrChanged)
		wantErr(t, n.Turn(noLink, toName(id)), ErrChanged)
	}
	for _, kind := range []TargetKind{NoLink, Foreign} {
		wantWords(t, n.Turn(noLink, Target{Kind: kind}), "cannot point it to nothing")
	}
	same()
	wantOnly(t, n.dir, "csi.sock")
}

// Proves that Pin asks nothing of csi.sock if the work is done.
func TestPinnedBefore(t *testing.T) {
	n := newNames(t, shortDir(t))
	id, _ := pinned(t, n)
	another(t, n)
	check(t, n.Pin(id))
	check(t, os.Remove(n.socket))
	check(t, n.Pin(id))
	check(t, os.Mkdir(n.socket, 0o700))
	check(t, n.Pin(id))
}

func TestDirectoryRemovedAndMadeAnew(t *testing.T) {
	n := newNames(t, shortDir(t))
	id, _ := pinned(t, n)
	check(t, n.Turn(noLink, toSocket))
	check(t, os.RemoveAll(n.dir))
	_, err := n.Read()
	wantErr(t, err, ErrDirGone)
	wantWords(t, err, n.dir, "restart the container")
	_, err = n.Sweep(0)
	wantErr(t, err, ErrDirGone)
	wantErr(t, n.Pin(id), ErrDirGone)
	err = n.Turn(noLink, toSocket)
	wantErr(t, err, ErrDirGone)
	wantWords(t, err, "it does not exist")
	wantErr(t, n.Turn(toSocket, toName(id)), ErrDirGone)
	check(t, n.Remove(id))
	_, err = n.Dial(context.Background(), id)
	wantErr(t, err, ErrDirGone)
	if n.Probe(id) != Gone || n.Probe(ID{}) != Gone {
		t.Errorf("probe: %v, %v", n.Probe(id), n.Probe(ID{}))
	}
	check(t, os.Mkdir(n.dir, 0o700))
	wantRead(t, n, Listing{})
	id, _ = pinned(t, n)
	check(t, n.Turn(noLink, toSocket))
	wantRead(t, n, Listing{Socket: id, Others: []ID{id}, Named: true, Link: toSocket})
}

func TestDirectoryIsNone(t *testing.T) {
	file := filepath.Join(shortDir(t), "file")
	check(t, os.WriteFile(file, nil, 0o600))
	n := newNames(t, file)
	_, err := n.Read()
	wantErr(t, err, unix.ENOTDIR)
	if want := "read " + file + ": not a directory: the directory of --csi-address is no directory, mount the driver's there"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	wantErr(t, n.Pin(ID{Ino: 1}), unix.ENOTDIR)
	wantErr(t, n.Turn(noLink, toSocket), unix.ENOTDIR)
	wantErr(t, n.Turn(toSocket, toSocket), unix.ENOTDIR)
	wantErr(t, n.Remove(ID{Ino: 1}), unix.ENOTDIR)
	if got := n.Probe(ID{Ino: 1}); got != Unclear {
		t.Errorf("probe: %v", got)
	}
}

// Several instances do the same at once: pinning succeeds for all, and one makes
// the link.
func TestSeveralAtOnce(t *testing.T) {
	n := newNames(t, shortDir(t))
	listen(t, n.socket)
	id := read(t, n).Socket
	for range 50 {
		var wait sync.WaitGroup
		pins, turns := make([]error, 4), make([]error, 4)
		for i := range pins {
			wait.Go(func() {
				pins[i] = n.Pin(id)
				turns[i] = n.Turn(noLink, toSocket)
			})
		}
		wait.Wait()
		turned := 0
		for i := range pins {
			check(t, pins[i])
			if turns[i] == nil {
				turned++
			} else {
				wantErr(t, turns[i], ErrChanged)
			}
		}
		if turned != 1 {
			t.Fatalf("%d made the link", turned)
		}
		wantRead(t, n, Listing{Socket: id, Others: []ID{id}, Named: true, Link: toSocket})
		check(t, n.Remove(id))
		check(t, os.Remove(n.link))
	}
}
