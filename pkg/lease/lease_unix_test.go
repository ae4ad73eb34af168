//go:build unix

package lease

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestFileIsPrivate(t *testing.T) {
	path := leasePath(t)
	check(t, newLease(t, path).Join(now()))
	info, err := os.Lstat(path)
	check(t, err)
	if info.Mode() != 0o600 {
		t.Fatalf("mode %v", info.Mode())
	}
}

// A lock ends with the process, and only with it.
func TestFrozenAndKilledHolder(t *testing.T) {
	for _, command := range []string{"join", "exclusive"} {
		t.Run(command, func(t *testing.T) {
			path := leasePath(t)
			holder := startChild(t, path)
			holder.must(t, command, "ok")
			check(t, holder.cmd.Process.Signal(syscall.SIGSTOP))

			l := newLease(t, path)
			started := time.Now()
			wantErr(t, l.TryExclusive(), ErrHeld)
			if command == "exclusive" {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
				defer cancel()
				wantErr(t, l.Join(ctx), ErrHeld)
			} else {
				check(t, l.Join(now()))
			}
			if took := time.Since(started); took > 5*time.Second { // Proves LOCK_NB: else it never comes here.
				t.Fatalf("a frozen holder held us for %v", took)
			}
			holder.kill()
			check(t, l.TryExclusive())
		})
	}
}

// Proves the unlock in drop: a child between fork and exec has a copy of the
// descriptor, and closing ours does not end the lock.
func TestDropEndsTheLockForEveryCopy(t *testing.T) {
	path := leasePath(t)
	l := newLease(t, path)
	check(t, l.TryExclusive())
	fd := -1
	conn, err := l.file.SyscallConn()
	check(t, err)
	check(t, conn.Control(func(original uintptr) {
		fd, err = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	}))
	check(t, err)
	defer unix.Close(fd)
	l.Drop()
	wantLocked(t, path, false)
}

// obstacles are what is not a regular file. Each can be put at a path.
func obstacles(t *testing.T) map[string]func(path string) {
	t.Helper()
	all := map[string]func(string){
		"a directory":     func(path string) { check(t, os.Mkdir(path, 0o700)) },
		"a symbolic link": func(path string) { write(t, path+".to", ""); check(t, os.Symlink(path+".to", path)) },
		"a named pipe":    func(path string) { check(t, unix.Mkfifo(path, 0o600)) },
		"a socket": func(path string) {
			listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			check(t, err)
			t.Cleanup(func() { _ = listener.Close() })
		},
	}
	if os.Geteuid() == 0 {
		all["a device"] = func(path string) {
			check(t, unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))) // null
		}
	}
	return all
}

func TestSomethingElseInTheWay(t *testing.T) {
	for name, put := range obstacles(t) {
		t.Run(name, func(t *testing.T) {
			path := leasePath(t)
			put(path)
			wantUntouched(t, path, name, newLease(t, path))
		})
	}
}

// Proves the look at what was opened (pipe) and O_NOFOLLOW (symbolic link): what
// comes after the first look is refused too, and not locked meanwhile.
func TestSomethingElsePutInTheWay(t *testing.T) {
	all := obstacles(t)
	all["a symbolic link that dangles"] = func(path string) { check(t, os.Symlink(path+".to", path)) }
	for name, put := range all {
		t.Run(name, func(t *testing.T) {
			path := leasePath(t)
			l := newLease(t, path)
			once(l, "looked", func() {
				put(path)
				l.at = func(step string) { t.Errorf("went on to %q", step) }
			})
			wantUntouched(t, path, strings.TrimSuffix(name, " that dangles"), l)
			if _, err := os.Lstat(path + ".to"); strings.HasSuffix(name, "dangles") && err == nil {
				t.Fatal("a link was followed")
			}
		})
	}
}

func wantUntouched(t *testing.T, path, what string, l *Lease) {
	t.Helper()
	for name, lock := range map[string]func() error{
		"join":      func() error { return l.Join(now()) },
		"exclusive": l.TryExclusive,
	} {
		err := lock()
		wantErr(t, err, ErrNotRegular)
		if !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the words do not say what is where: %v", name, err)
		}
		wantHeld(t, l, false)
	}
	if info, err := os.Lstat(path); err != nil || kind(info.Mode()) != what {
		t.Fatalf("it was touched: %v %v", info, err)
	}
}

// Proves the look before opening: to open a pipe wakes who waits at its other end.
func TestPipeInTheWayIsNotOpened(t *testing.T) {
	path := leasePath(t)
	check(t, unix.Mkfifo(path, 0o600))
	// A non-blocking open for writing succeeds only while somebody has the
	// reading end; it is tried at every step of ours.
	l := newLease(t, path)
	l.at = func(step string) {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		t.Errorf("went on to %q with a pipe in the way", step)
	}
	wantErr(t, l.Join(now()), ErrNotRegular)
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func TestNoPermission(t *testing.T) {
	requireRoot(t)
	// Not below t.TempDir, whose parents only root may pass.
	dir, err := os.MkdirTemp("", "lease")
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	check(t, os.Chmod(dir, 0o777))
	path := filepath.Join(dir, "lease")
	check(t, newLease(t, path).Join(now())) // Ours, 0600.

	program := filepath.Join(dir, "test")
	contents, err := os.ReadFile(os.Args[0])
	check(t, err)
	check(t, os.WriteFile(program, contents, 0o755))
	nobody := startChild(t, path, func(cmd *exec.Cmd) {
		cmd.Path = program
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	})
	nobody.must(t, "join 20s", "open "+path+": permission denied: run all registrars of this node as one user "+
		"and look for denials of SELinux or AppArmor") // At once: 20 s would be too long for the test.
}

// Proves the open without O_CREAT, where fs.protected_regular is set as on most
// nodes: even root may not O_CREAT somebody else's file in a sticky directory.
func TestSomebodyElsesFileInAStickyDirectory(t *testing.T) {
	requireRoot(t)
	setting, err := os.ReadFile("/proc/sys/fs/protected_regular")
	if err != nil || strings.TrimSpace(string(setting)) == "0" {
		t.Skip("needs fs.protected_regular")
	}
	path := leasePath(t)
	check(t, os.Chmod(filepath.Dir(path), 0o777|os.ModeSticky))
	write(t, path, "")
	check(t, os.Chown(path, 65534, 65534))
	check(t, newLease(t, path).Join(now()))
}
