package regsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	p := newPlace(t, filepath.FromSlash("/registration/"))
	if got, want := p.Path(), filepath.FromSlash("/registration/hostpath.csi.k8s.io-reg.sock"); got != want {
		t.Errorf("path: got %s, want %s", got, want)
	}
	if got, want := p.LeasePath(), filepath.FromSlash("/registration/.hostpath.csi.k8s.io-reg.lease"); got != want {
		t.Errorf("lease path: got %s, want %s", got, want)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct{ dir, driver, says string }{
		{"", driver, "no directory"},
		{"/registration", "", "no driver name"},
		{"/registration", "../x", "cannot be part of a file name"},
		{"/registration", "a\x00b", "cannot be part of a file name"},
		{"/registration", `a\b`, "cannot be part of a file name"},
		{"/a\x00b", driver, "cannot be part of a file name"},
	} {
		_, err := New(c.dir, c.driver)
		wantWords(t, err, c.says)
	}
}

func TestNewCountsBytes(t *testing.T) {
	const rest = len("/" + driver + "-reg.sock")
	longest := "/" + strings.Repeat("é", (maxPath-rest-1)/2) + strings.Repeat("x", (maxPath-rest-1)%2)
	p, err := New(longest, driver)
	check(t, err)
	if len(p.Path()) != maxPath {
		t.Fatalf("the test's path has %d bytes", len(p.Path()))
	}
	_, err = New(longest+"x", driver)
	wantWords(t, err, "108 bytes", "holds 107", "shorter path")
}

func TestIDs(t *testing.T) {
	a := ID{Dev: 1, Ino: 2, Changed: 3}
	for b, same := range map[ID]bool{
		{1, 2, 3}: true, {1, 2, 4}: true, {1, 3, 3}: false, {2, 2, 3}: false, {}: false,
	} {
		if got := a.SameInode(b); got != same {
			t.Errorf("%v and %v: got %v, want %v", a, b, got, same)
		}
	}
}

func TestStatAbsent(t *testing.T) {
	p := newPlace(t, shortDir(t))
	_, err := p.Stat()
	wantErr(t, err, ErrAbsent)
	_, _, err = p.Mine(nil)
	wantErr(t, err, ErrAbsent)
	wantErr(t, p.Remove(ID{}), ErrAbsent)
}

func TestDirectoryAbsent(t *testing.T) {
	p := newPlace(t, filepath.Join(shortDir(t), "absent"))
	_, err := p.Stat()
	wantErr(t, err, ErrDirGone)
	wantWords(t, err, p.dir, "restart the container")
	if errors.Is(err, ErrAbsent) {
		t.Error("absent and gone are the same")
	}
	_, err = p.Bind()
	wantErr(t, err, ErrDirGone)
	_, err = p.Sweep(context.Background())
	wantErr(t, err, ErrDirGone)
	wantErr(t, p.Remove(ID{}), ErrDirGone)
}

func TestDirectoryIsNone(t *testing.T) {
	file := filepath.Join(shortDir(t), "file")
	check(t, os.WriteFile(file, nil, 0o600))
	p := newPlace(t, file)
	_, err := p.Stat()
	if err == nil || errors.Is(err, ErrAbsent) || errors.Is(err, ErrDirGone) {
		t.Fatal(err)
	}
}

// Proves the type check before each removal and replacement (I1).
func TestNotASocket(t *testing.T) {
	p := newPlace(t, shortDir(t))
	check(t, os.WriteFile(p.Path(), []byte("12345"), 0o640))
	before, err := os.Lstat(p.Path())
	check(t, err)
	_, err = p.Stat()
	wantErr(t, err, ErrNotSocket)
	wantWords(t, err, "a regular file", fmt.Sprint(before.Mode()), "5 bytes", "move it away or remove it")
	_, _, err = p.Mine(nil)
	wantErr(t, err, ErrNotSocket)
	wantErr(t, p.Remove(ID{}), ErrNotSocket)
	wantErr(t, p.Publish(bind(t, p), ID{Ino: 1}), ErrNotSocket)
	wantErr(t, p.Publish(bind(t, p), ID{}), ErrExists)
	after, err := os.Lstat(p.Path())
	check(t, err)
	if !os.SameFile(before, after) {
		t.Fatal("somebody else's file was touched")
	}
	wantOnly(t, p.dir, filepath.Base(p.Path()))
}

func TestPublishAndRemove(t *testing.T) {
	p := newPlace(t, shortDir(t))
	s := bind(t, p)
	if got := s.Addr().String(); got != p.Path() {
		t.Errorf("address: got %s, want %s", got, p.Path())
	}
	wantAbsent(t, p.Path())
	check(t, p.Publish(s, ID{}))
	wantOnly(t, p.dir, filepath.Base(p.Path()))
	id := stat(t, p)
	if s.ID() != id { // Proves the look after the rename.
		t.Fatalf("the socket calls itself %v, the path says %v", s.ID(), id)
	}
	wantDial(t, p.Path(), Connected)
	wantMine(t, p, s, true)
	wantErr(t, p.Remove(ID{Dev: id.Dev, Ino: id.Ino, Changed: id.Changed + 1}), ErrChanged)
	wantErr(t, p.Remove(ID{}), ErrChanged)
	wantMine(t, p, s, true)
	check(t, p.Remove(id))
	wantAbsent(t, p.Path())
	wantErr(t, p.Remove(id), ErrAbsent)
}

func TestTwoListeners(t *testing.T) {
	p := newPlace(t, shortDir(t))
	first := published(t, p)
	second := bind(t, p)
	check(t, p.Publish(second, stat(t, p)))
	wantMine(t, p, first, false)
	wantMine(t, p, second, true)
	wantMine(t, p, nil, false)
	check(t, first.Close()) // Must not unlink its successor's.
	wantMine(t, p, second, true)
	wantDial(t, p.Path(), Connected)
	check(t, second.Close()) // Nor its own.
	wantDial(t, p.Path(), Refused)
	wantMine(t, p, second, false) // Proves that a closed socket owns nothing.
	check(t, p.Remove(stat(t, p)))
}

func TestPublishFirstOnly(t *testing.T) {
	p := newPlace(t, shortDir(t))
	first, late := published(t, p), bind(t, p)
	err := p.Publish(late, ID{})
	wantErr(t, err, ErrExists)
	if errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	wantMine(t, p, first, true)
	wantMine(t, p, late, false)
	wantOnly(t, p.dir, filepath.Base(p.Path()))
}

func TestPublishOverAnother(t *testing.T) {
	p := newPlace(t, shortDir(t))
	old := published(t, p)
	judged := stat(t, p)
	check(t, old.Close())
	check(t, p.Remove(judged))

	wantErr(t, p.Publish(bind(t, p), judged), ErrChanged) // Absent now.
	wantAbsent(t, p.Path())

	other := published(t, p)
	wantErr(t, p.Publish(bind(t, p), judged), ErrChanged)
	wantMine(t, p, other, true)
	wantDial(t, p.Path(), Connected)
	wantOnly(t, p.dir, filepath.Base(p.Path()))
}

func TestPublishOnceAndOnlyHere(t *testing.T) {
	p, elsewhere := newPlace(t, shortDir(t)), newPlace(t, shortDir(t))
	s := published(t, p)
	wantWords(t, p.Publish(s, stat(t, p)), "is published or closed")
	wantMine(t, p, s, true)
	closed := bind(t, p)
	check(t, closed.Close())
	wantWords(t, p.Publish(closed, stat(t, p)), "is published or closed")
	if elsewhere.Publish(bind(t, p), ID{}) == nil {
		t.Error("a socket is published where it was not bound")
	}
	wantOnly(t, elsewhere.dir)
	wantMine(t, p, s, true)
}

func TestAcceptEndsWithClose(t *testing.T) {
	p := newPlace(t, shortDir(t))
	s := bind(t, p)
	accepted := make(chan error)
	accept := func() {
		conn, err := s.Accept()
		if err == nil {
			err = conn.Close()
		}
		accepted <- err
	}
	go accept()
	check(t, p.Publish(s, ID{}))
	wantDial(t, p.Path(), Connected)
	check(t, <-accepted)

	_, err := s.SyscallConn()
	check(t, err)
	go accept()
	check(t, s.Close())
	if err := <-accepted; err == nil {
		t.Fatal("accepted on a closed socket")
	}
	if s.Close() == nil {
		t.Error("closed twice")
	}
}
