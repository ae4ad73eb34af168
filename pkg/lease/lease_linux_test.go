package lease

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mountTmpfs mounts a tmpfs of a test's own, with a lease file in it if asked.
func mountTmpfs(t *testing.T, options string) string {
	t.Helper()
	requireRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	t.Cleanup(func() { check(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

func TestReadOnly(t *testing.T) {
	dir := mountTmpfs(t, "")
	existing := filepath.Join(dir, "existing")
	write(t, existing, "")
	check(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	for _, path := range []string{existing, filepath.Join(dir, "absent")} {
		err := newLease(t, path).Join(soon(t))
		wantErr(t, err, unix.EROFS)
		if !strings.HasSuffix(err.Error(), "mount the directory read-write") {
			t.Error(err)
		}
	}
}

func TestFull(t *testing.T) {
	dir := mountTmpfs(t, "nr_inodes=2")
	existing := filepath.Join(dir, "existing")
	write(t, existing, "")
	check(t, newLease(t, existing).Join(now())) // To lock takes no space.
	err := newLease(t, filepath.Join(dir, "absent")).Join(soon(t))
	wantErr(t, err, unix.ENOSPC)
	if !strings.HasSuffix(err.Error(), "free some space or inodes there") {
		t.Error(err)
	}
}

// A lock belongs to the file, not to the mount: two containers that mount one
// directory exclude each other.
func TestSameFileThroughAnotherMount(t *testing.T) {
	dir, other := mountTmpfs(t, ""), t.TempDir()
	check(t, unix.Mount(dir, other, "", unix.MS_BIND, ""))
	t.Cleanup(func() { check(t, unix.Unmount(other, unix.MNT_DETACH)) })
	check(t, newLease(t, filepath.Join(dir, "lease")).TryExclusive())
	wantErr(t, newLease(t, filepath.Join(other, "lease")).Join(now()), ErrHeld)
}

// A directory that was removed below a mount keeps its path (L8 of the design).
func TestDirectoryRemovedBelowTheMount(t *testing.T) {
	dir, other := mountTmpfs(t, ""), t.TempDir()
	host := filepath.Join(dir, "registry")
	check(t, os.Mkdir(host, 0o700))
	check(t, unix.Mount(host, other, "", unix.MS_BIND, ""))
	t.Cleanup(func() { check(t, unix.Unmount(other, unix.MNT_DETACH)) })
	l := newLease(t, filepath.Join(other, "lease"))
	check(t, l.Join(now()))
	check(t, os.RemoveAll(host))
	check(t, os.Mkdir(host, 0o700))
	if err := l.Join(soon(t)); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "restart the container") {
		t.Fatal(err)
	}
}

// Proves O_NONBLOCK: a file that another process has leased (fcntl(2)) makes an
// open wait, up to /proc/sys/fs/lease-break-time.
func TestFileLeaseDoesNotHoldUs(t *testing.T) {
	path := leasePath(t)
	write(t, path, "")
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	check(t, err)
	defer file.Close()
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("needs file leases: %v", err)
	}
	started := time.Now()
	wantErr(t, newLease(t, path).Join(soon(t)), unix.EAGAIN)
	if took := time.Since(started); took > 5*time.Second {
		t.Fatalf("it waited for %v", took)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	check(t, err)
	return len(entries)
}

// Proves each Close of a file: an instance tries for months.
func TestNoDescriptorIsLost(t *testing.T) {
	path := leasePath(t)
	l, holder := newLease(t, path), newLease(t, path)
	check(t, holder.Join(now()))
	piped := newLease(t, path+".pipe")
	piped.at = func(string) { check(t, unix.Mkfifo(path+".pipe", 0o600)) }
	moved := newLease(t, path+".moved")
	moved.at = func(step string) {
		if step == "locked" {
			check(t, os.Remove(path+".moved"))
		}
	}
	before := openDescriptors(t)
	for range 5 {
		check(t, l.Join(now()))
		replace(t, path)
		check(t, l.Join(now()))
		l.Drop()
		check(t, holder.Join(now()))
		wantErr(t, l.TryExclusive(), ErrHeld)
		wantErr(t, moved.Join(now()), ErrReplaced)
		wantErr(t, piped.Join(now()), ErrNotRegular)
		check(t, os.Remove(path+".pipe"))
	}
	if after := openDescriptors(t); after != before {
		t.Fatalf("%d descriptors are open, %d were", after, before)
	}
}
