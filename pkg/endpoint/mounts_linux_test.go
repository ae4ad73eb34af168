package endpoint

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func mountAt(t *testing.T, source, target, kind string, flags uintptr, options string) {
	t.Helper()
	requireRoot(t)
	err := unix.Mount(source, target, kind, flags, options)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) {
		t.Skipf("needs to mount: %v", err)
	}
	check(t, err)
	t.Cleanup(func() {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) { // Unmounted by the test.
			t.Error(err)
		}
	})
}

// overlay makes an overlay of two fresh directories, since it does not go on top
// of itself, with names made in one of them, and returns it.
func overlay(t *testing.T, names ...string) string {
	t.Helper()
	base := shortDir(t)
	mountAt(t, "none", base, "tmpfs", 0, "")
	for _, name := range append([]string{"l", "u", "w", "m"}, names...) {
		check(t, os.Mkdir(filepath.Join(base, name), 0o755))
	}
	mountAt(t, "overlay", base+"/m", "overlay", 0, "lowerdir="+base+"/l,upperdir="+base+"/u,workdir="+base+"/w")
	return base + "/m"
}

// L9: all of it works on overlayfs and tmpfs too.
func TestOtherFileSystems(t *testing.T) {
	for name, dir := range map[string]func(*testing.T) string{
		"tmpfs": func(t *testing.T) string {
			dir := shortDir(t)
			mountAt(t, "none", dir, "tmpfs", 0, "")
			return dir
		},
		"overlayfs":            func(t *testing.T) string { return overlay(t) },
		"overlayfs, lower dir": func(t *testing.T) string { return overlay(t, "l/d") + "/d" },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNames(t, dir(t))
			old, l := pinned(t, n)
			check(t, n.Turn(noLink, toSocket))
			check(t, os.Remove(n.socket))
			leave(t, n.socket)
			young := read(t, n).Socket
			wantRead(t, n, Listing{Socket: young, Others: []ID{old}, Link: toSocket})
			at(n, "judged", func() { another(t, n) })
			wantErr(t, n.Pin(young), ErrChanged)
			at(n, "judged", func() {})
			wantAbsent(t, n.Path(young))
			check(t, n.Turn(toSocket, toName(old)))
			conn, err := n.Dial(t.Context(), old)
			wantReaches(t, l, conn, err)
			if n.Probe(old) != Listens || n.Probe(ID{}) != Listens {
				t.Errorf("probe: %v, %v", n.Probe(old), n.Probe(ID{}))
			}
			check(t, n.Turn(toName(old), toSocket))
			check(t, n.Remove(old))
			wantOnly(t, n.dir, ".csi.sock.ep", "csi.sock")
		})
	}
}

func TestReadOnly(t *testing.T) {
	dir := shortDir(t)
	mountAt(t, "none", dir, "tmpfs", 0, "")
	n := newNames(t, dir)
	id, _ := pinned(t, n)
	check(t, n.Turn(noLink, toSocket))
	check(t, os.Symlink("csi.sock", temp(n, "00112233")))
	check(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	defer func() { check(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, "")) }()
	wantRead(t, n, Listing{Socket: id, Others: []ID{id}, Named: true, Link: toSocket})
	const hint = "mount the driver's directory read-write"
	check(t, n.Pin(id)) // It has it.
	err := n.Turn(toSocket, toName(id))
	wantErr(t, err, unix.EROFS)
	wantWords(t, err, hint)
	wantErr(t, n.Remove(id), unix.EROFS)
	removed, err := n.Sweep(0)
	wantErr(t, err, unix.EROFS)
	if len(removed) != 0 || n.Probe(id) != Listens {
		t.Errorf("swept %q; probe: %v", removed, n.Probe(id))
	}
	check(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, ""))
	check(t, n.Remove(id))
	check(t, os.Remove(n.link))
	check(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	err = n.Pin(id)
	wantErr(t, err, ErrNoLinks)
	wantErr(t, err, unix.EROFS)
	wantWords(t, err, hint)
	wantErr(t, n.Turn(noLink, toSocket), unix.EROFS)
}

// What may pass is not ErrNoLinks.
func TestFull(t *testing.T) {
	dir := shortDir(t)
	mountAt(t, "none", dir, "tmpfs", 0, "nr_inodes=2")
	n := newNames(t, dir)
	leave(t, n.socket)
	id := read(t, n).Socket
	for _, err := range []error{n.Pin(id), n.Turn(noLink, toSocket)} {
		wantErr(t, err, unix.ENOSPC)
		wantWords(t, err, "free some space or inodes there")
		if strings.Contains(outcome(err), "no links") {
			t.Error(err)
		}
	}
	wantOnly(t, dir, "csi.sock")
}

// L9: a socket that is mounted by itself is on another mount than its directory.
func TestSocketIsAMount(t *testing.T) {
	driver, dir := newNames(t, shortDir(t)), shortDir(t)
	listen(t, driver.socket)
	n := newNames(t, dir)
	check(t, os.WriteFile(n.socket, nil, 0o600))
	mountAt(t, driver.socket, n.socket, "", unix.MS_BIND, "")
	id := read(t, n).Socket
	if id != read(t, driver).Socket {
		t.Fatalf("got %v", id)
	}
	err := n.Pin(id)
	wantErr(t, err, ErrNoLinks)
	wantErr(t, err, unix.EXDEV)
	wantWords(t, err, n.socket, "mount its directory instead")
	wantOnly(t, dir, "csi.sock")
}

// Two mounts of one directory, as the containers of two pods have: the names are
// the same.
func TestTwoMountsOfOneDirectory(t *testing.T) {
	driver, dir := newNames(t, shortDir(t)), shortDir(t)
	l := listen(t, driver.socket)
	mountAt(t, driver.dir, dir, "", unix.MS_BIND, "")
	n := newNames(t, dir)
	id := read(t, n).Socket
	check(t, n.Pin(id))
	check(t, n.Turn(noLink, toName(id)))
	wantRead(t, driver, Listing{Socket: id, Others: []ID{id}, Named: true, Link: toName(id)})
	check(t, driver.Pin(id))
	conn, err := n.Dial(t.Context(), id)
	wantReaches(t, l, conn, err)
	check(t, driver.Remove(id))
	wantAbsent(t, n.Path(id))
}

// L8: a directory removed below a mount keeps its path. Proves the look at the
// link count.
func TestDirectoryRemovedBelowTheMount(t *testing.T) {
	for name, host := range map[string]func(*testing.T) string{
		"what is there":    shortDir,
		"overlayfs, upper": func(t *testing.T) string { return overlay(t) },
		"overlayfs, lower": func(t *testing.T) string { return overlay(t, "l/driver") },
	} {
		t.Run(name, func(t *testing.T) {
			driver, dir := filepath.Join(host(t), "driver"), shortDir(t)
			check(t, os.MkdirAll(driver, 0o700))
			mountAt(t, driver, dir, "", unix.MS_BIND, "")
			n := newNames(t, dir)
			id, _ := pinned(t, n)
			check(t, os.RemoveAll(driver))
			check(t, os.Mkdir(driver, 0o700))
			_, err := n.Read()
			wantErr(t, err, ErrDirGone)
			wantWords(t, err, "restart the container")
			if name == "what is there" {
				wantWords(t, err, "on the host below this mount")
			}
			err = n.Turn(noLink, toSocket)
			wantErr(t, err, ErrDirGone)
			wantWords(t, err, "restart the container")
			if err := n.Pin(id); err == nil {
				t.Error("pinned in a directory that is gone")
			}
			check(t, n.Remove(id))
			if got := n.Probe(id); got != Gone {
				t.Errorf("probe: %v", got)
			}
		})
	}
}

// as returns a change that makes a child another user, with no capabilities.
func as(t *testing.T, uid uint32, dir string) func(*exec.Cmd) {
	t.Helper()
	requireRoot(t)
	program := filepath.Join(dir, "test")
	contents, err := os.ReadFile(os.Args[0])
	check(t, err)
	check(t, os.WriteFile(program, contents, 0o755))
	return func(cmd *exec.Cmd) {
		cmd.Path = program
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
}

const nobody = 65534

// requireProtectedHardlinks is loud: without the setting anybody may link.
func requireProtectedHardlinks(t *testing.T) {
	t.Helper()
	on, err := os.ReadFile("/proc/sys/fs/protected_hardlinks")
	if err != nil || strings.TrimSpace(string(on)) != "1" {
		t.Skipf("needs fs.protected_hardlinks=1, it is %q (%v)", on, err)
	}
}

// L9: somebody else's socket cannot be linked without CAP_FOWNER; the rest works.
func TestForeignOwner(t *testing.T) {
	requireProtectedHardlinks(t)
	for name, start := range map[string]func(*testing.T, *Names) *child{
		"another user": func(t *testing.T, n *Names) *child {
			check(t, os.Chmod(n.socket, 0o666))
			return startChild(t, n.socket, as(t, nobody, shortDirFor(t)))
		},
		"root without capabilities": func(t *testing.T, n *Names) *child {
			check(t, os.Chown(n.socket, nobody, nobody))
			check(t, os.Chmod(n.socket, 0o666))
			c := startChild(t, n.socket)
			c.must(t, "uncapable", "ok")
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			requireRoot(t)
			dir := shortDir(t)
			check(t, os.Chmod(dir, 0o777))
			n := newNames(t, dir)
			listen(t, n.socket)
			c := start(t, n)
			c.must(t, "probe", "listens")
			c.must(t, "pin", "no links: link "+n.socket+": ", "operation not permitted", "CAP_FOWNER")
			wantOnly(t, dir, "csi.sock")
			c.must(t, "turn", "ok")
			check(t, os.Chown(n.socket, 0, 0))
			check(t, n.Pin(read(t, n).Socket))
			check(t, os.Chmod(n.socket, 0o666))
			c.must(t, "pin", "ok") // It has it.
			c.must(t, "probe other", "listens")
			c.must(t, "remove", "ok")
		})
	}
}

// shortDirFor is a shortDir that everybody may enter.
func shortDirFor(t *testing.T) string {
	t.Helper()
	dir := shortDir(t)
	check(t, os.Chmod(dir, 0o755))
	return dir
}

// A directory in which we may not write, and a socket that we may not connect
// to.
func TestNoPermission(t *testing.T) {
	dir := shortDirFor(t)
	n := newNames(t, dir)
	id, _ := pinned(t, n)
	check(t, os.Chmod(n.socket, 0o600))
	c := startChild(t, n.socket, as(t, nobody, shortDirFor(t)))
	c.must(t, "probe", "denied")
	c.must(t, "probe other", "denied")
	c.must(t, "dial", "permission denied", "SELinux or AppArmor")
	c.must(t, "turn", "turn "+n.link+": permission denied: run as root, and look for denials of SELinux or AppArmor")
	c.must(t, "remove", "permission denied")
	check(t, n.Remove(id))
	check(t, os.Chown(n.socket, nobody, nobody))
	c.must(t, "pin", "no links", "permission denied", "SELinux or AppArmor")
	wantOnly(t, dir, "csi.sock")
}

// A directory that may be listed and not entered: unknown is not absent.
func TestDirectoryThatMayNotBeEntered(t *testing.T) {
	dir := shortDirFor(t)
	n := newNames(t, dir)
	pinned(t, n)
	check(t, os.Chmod(dir, 0o744))
	c := startChild(t, n.socket, as(t, nobody, shortDirFor(t)))
	c.must(t, "probe", "look at "+n.socket+": permission denied")
}

// What each errno of link(2) means: no hope, or something that may pass.
func TestExplainLink(t *testing.T) {
	for errno, hopeless := range map[error]bool{
		unix.EPERM: true, unix.EACCES: true, unix.EXDEV: true, unix.EROFS: true, unix.EMLINK: true, unix.ENOTSUP: true, unix.ENOSYS: true,
		unix.ENOSPC: false, unix.EDQUOT: false, unix.EIO: false, unix.ENOMEM: false,
	} {
		err := explainLink("/csi/csi.sock", errno)
		wantErr(t, err, errno)
		if errors.Is(err, ErrNoLinks) != hopeless {
			t.Errorf("%v", err)
		}
		if hopeless {
			wantWords(t, err, "link /csi/csi.sock: ", ErrNoLinks.Error()+": "+errno.Error()+": ")
		}
	}
}

// Proves the look for /proc: without it a second name would read as gone, and be
// removed though somebody listens there.
func TestWithoutProc(t *testing.T) {
	requireRoot(t)
	n := newNames(t, shortDir(t))
	id, _ := pinned(t, n)
	c := startChild(t, n.socket)
	c.must(t, "probe other", "listens")
	c.must(t, "chroot", "ok")
	c.must(t, "in /csi.sock", "ok")
	c.must(t, "probe", "listens") // A short csi.sock needs no /proc,
	c.must(t, "turn", "ok")
	c.must(t, "probe other", "unclear")
	c.must(t, "remove", "ok")
	c.must(t, "pin", "no links", "this takes a mounted /proc")
	wantAbsent(t, n.Path(id))
}
