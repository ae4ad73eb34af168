package regsocket

import (
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tempOf returns the path of the one temporary name in the directory.
func tempOf(t *testing.T, p *Place) string {
	t.Helper()
	entries, err := os.ReadDir(p.dir)
	check(t, err)
	var temps []string
	for _, entry := range entries {
		if p.isTemp(entry.Name()) {
			temps = append(temps, filepath.Join(p.dir, entry.Name()))
		}
	}
	if len(temps) != 1 {
		t.Fatalf("temporary names: %q, want one", temps)
	}
	return temps[0]
}

// Proves the chmod, and that it comes before listen.
func TestPrivateBeforeAnyoneCanConnect(t *testing.T) {
	p := newPlace(t, shortDir(t))
	steps := 0
	p.seams.at = func(step string) {
		steps++
		wantCloseOnExec(t)
		wantDial(t, tempOf(t, p), Refused)
		info, err := os.Lstat(tempOf(t, p))
		check(t, err)
		if step == "private" && info.Mode() != fs.ModeSocket|0o600 {
			t.Errorf("mode %v before listen", info.Mode())
		}
	}
	s := bind(t, p)
	if steps != 2 {
		t.Fatalf("%d steps", steps)
	}
	p.seams.at = func(string) {}
	temp := tempOf(t, p)
	if !strings.HasPrefix(filepath.Base(temp), ".") {
		t.Errorf("kubelet would see %s", temp)
	}
	wantDial(t, temp, Connected)
	check(t, s.Close())
	wantAbsent(t, temp)
}

// Proves that Bind notices when the temporary name is not its own any more, and
// then leaves it alone.
func TestTemporaryNameTakenAway(t *testing.T) {
	p := newPlace(t, shortDir(t))
	at(p, "bound", func() { check(t, os.Remove(tempOf(t, p))) })
	_, err := p.Bind()
	wantErr(t, err, ErrDirGone) // It cannot tell a name that always goes away.
	wantOnly(t, p.dir)

	var temp string
	at(p, "bound", func() {
		temp = tempOf(t, p)
		check(t, os.Rename(temp, filepath.Join(p.dir, "pinned")))
		leave(t, temp)
	})
	_, err = p.Bind()
	wantErr(t, err, ErrChanged)
	wantOnly(t, p.dir, filepath.Base(temp), "pinned")
}

// Proves that Bind leaves nothing behind when it fails after binding.
func TestBindLeavesNothing(t *testing.T) {
	p := newPlace(t, shortDir(t))
	var limit unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	defer func() { check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	at(p, "private", func() { // The listener's copy of the descriptor fails then.
		check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}))
	})
	_, err := p.Bind()
	wantErr(t, err, unix.EMFILE)
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	wantOnly(t, p.dir)
}

// leave leaves a socket at path on which nobody listens.
func leave(t *testing.T, path string) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	check(t, err)
	listener.SetUnlinkOnClose(false)
	check(t, listener.Close())
}

// Proves the check in dropTemp.
func TestCloseLeavesAnotherUnderTheTemporaryName(t *testing.T) {
	p := newPlace(t, shortDir(t))
	s := bind(t, p)
	temp := tempOf(t, p)
	check(t, os.Remove(temp))
	leave(t, temp)
	check(t, s.Close())
	if _, err := os.Lstat(temp); err != nil {
		t.Fatal(err)
	}
}

// Proves the backlog: as many as the kernel allows may wait.
func TestBacklog(t *testing.T) {
	const dials = 600 // A small one holds 128.
	p := newPlace(t, shortDir(t))
	s := published(t, p)
	conns := make([]net.Conn, 0, dials)
	for range dials {
		conn, err := p.Dial(context.Background())
		check(t, err)
		conns = append(conns, conn)
	}
	check(t, s.Close())
	for _, conn := range conns {
		check(t, conn.Close())
	}
}

// L1 of the design: SyscallConn must not make the listener blocking.
func TestDescriptorStaysNonBlocking(t *testing.T) {
	s := published(t, newPlace(t, shortDir(t)))
	conn, err := s.SyscallConn()
	check(t, err)
	var flags, descriptor int
	check(t, conn.Control(func(fd uintptr) {
		flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0)
		check(t, err)
		descriptor, err = unix.FcntlInt(fd, unix.F_GETFD, 0)
		check(t, err)
	}))
	if flags&unix.O_NONBLOCK == 0 || descriptor&unix.FD_CLOEXEC == 0 {
		t.Fatalf("flags %o, descriptor flags %o", flags, descriptor)
	}
}

// Proves that Bind tries again before it says that the directory is gone.
func TestDirectoryMadeAnewMeanwhile(t *testing.T) {
	p := newPlace(t, shortDir(t))
	first := true
	at(p, "bound", func() {
		if first {
			first = false
			check(t, os.RemoveAll(p.dir))
			check(t, os.Mkdir(p.dir, 0o700))
		}
	})
	published(t, p)
	wantDial(t, p.Path(), Connected)
}

// longDir is a directory in which the path fits into an address and no temporary
// name does.
func longDir(t *testing.T) string {
	t.Helper()
	dir := shortDir(t)
	dir = filepath.Join(dir, strings.Repeat("d", maxPath-len(dir)-len("//"+driver+"-reg.sock")))
	check(t, os.Mkdir(dir, 0o755))
	return dir
}

// Proves the detour through /proc/self/fd (L7).
func TestLongPath(t *testing.T) {
	p := newPlace(t, longDir(t))
	if len(p.Path()) != maxPath {
		t.Fatalf("the test's path has %d bytes", len(p.Path()))
	}
	s := published(t, p)
	wantOnly(t, p.dir, filepath.Base(p.Path()))
	wantMine(t, p, s, true)
	wantDial(t, p.Path(), Connected)
	check(t, p.Publish(bind(t, p), stat(t, p)))
	wantDial(t, p.Path(), Connected)

	crashed := startChild(t, p.dir)
	crashed.must(t, "bind", "ok")
	temp := tempOf(t, p)
	crashed.kill()
	removed, err := p.Sweep(context.Background())
	check(t, err)
	if len(removed) != 1 || removed[0] != temp {
		t.Fatalf("swept %q, want %s", removed, temp)
	}
}

func TestLongDirectoryRemoved(t *testing.T) {
	p := newPlace(t, longDir(t))
	check(t, os.Remove(p.dir))
	_, err := p.Bind()
	wantErr(t, err, ErrDirGone)
}

// A name that fits nowhere is an error that says so.
func TestLongDriverName(t *testing.T) {
	p, err := New("/x", strings.Repeat("d", 93))
	check(t, err)
	p.dir = shortDir(t)
	_, err = p.Bind()
	wantErr(t, err, unix.ENAMETOOLONG)
	if _, again := p.Bind(); again.Error() != err.Error() { // Callers tell news by the words.
		t.Errorf("one cause, two texts: %v; %v", err, again)
	}
}

// Proves the look for /proc: without it a long path would read as a directory
// that is gone, and the instance would restart for ever.
func TestLongPathWithoutProc(t *testing.T) {
	requireRoot(t)
	root := shortDir(t)
	c := startChild(t, root)
	c.must(t, "chroot", "ok")
	c.must(t, "bind", "ok") // A short one needs no /proc.
	c.must(t, "close", "ok")

	inside := "/" + strings.Repeat("d", maxPath-len("//"+driver+"-reg.sock"))
	check(t, os.Mkdir(filepath.Join(root, inside), 0o755))
	c.must(t, "in "+inside, "ok")
	c.must(t, "bind", "bind in "+inside+": the path is long, which takes a mounted /proc: mount the directory at a shorter path")
}

// wantCloseOnExec proves SOCK_CLOEXEC: no process started meanwhile may keep a
// socket of ours alive.
func wantCloseOnExec(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	for _, entry := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		if !strings.HasPrefix(target, "socket:") {
			continue
		}
		fd, err := strconv.Atoi(entry.Name())
		check(t, err)
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		check(t, err)
		if flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d would be inherited", fd)
		}
	}
}

func TestNoDescriptorIsLost(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		check(t, err)
		return len(entries)
	}
	p := newPlace(t, longDir(t))
	s := published(t, p)
	before := open()
	for range 5 {
		late, err := p.Bind()
		check(t, err)
		wantErr(t, p.Publish(late, ID{}), ErrExists)
		check(t, late.Close())
		p.seams.at = func(step string) {
			if step == "bound" {
				check(t, os.Remove(tempOf(t, p)))
			}
		}
		_, err = p.Bind()
		wantErr(t, err, ErrDirGone) // It cannot tell a name that always goes away.
		p.seams.at = func(string) {}
		unborn, err := p.Bind()
		check(t, err)
		_, err = p.Sweep(context.Background())
		check(t, err)
		check(t, unborn.Close())
	}
	if after := open(); after != before {
		t.Fatalf("%d descriptors are open, %d were", after, before)
	}
	check(t, s.Close())
}
