package regsocket

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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

func mount(t *testing.T, source, target, kind string, flags uintptr, options string) {
	t.Helper()
	requireRoot(t)
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		t.Skipf("needs to mount: %v", err)
	}
	t.Cleanup(func() { check(t, unix.Unmount(target, unix.MNT_DETACH)) })
}

func TestReadOnly(t *testing.T) {
	dir := shortDir(t)
	mount(t, "none", dir, "tmpfs", 0, "")
	p := newPlace(t, dir)
	s := published(t, p)
	check(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	_, err := p.Bind()
	wantErr(t, err, unix.EROFS)
	wantWords(t, err, "mount the registration directory read-write")
	wantErr(t, p.Remove(stat(t, p)), unix.EROFS)
	wantMine(t, p, s, true)
	check(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, ""))
}

func TestFull(t *testing.T) {
	dir := shortDir(t)
	mount(t, "none", dir, "tmpfs", 0, "nr_inodes=2")
	p := newPlace(t, dir)
	s := published(t, p)
	_, err := p.Bind()
	wantErr(t, err, unix.ENOSPC)
	wantWords(t, err, "free some space or inodes there")
	wantMine(t, p, s, true)
	wantOnly(t, dir, filepath.Base(p.Path()))
}

func TestNoPermission(t *testing.T) {
	requireRoot(t)
	dir := shortDir(t)
	check(t, os.Chmod(dir, 0o755))
	p := newPlace(t, dir)
	published(t, p) // Ours, 0600.
	program := filepath.Join(dir, "test")
	contents, err := os.ReadFile(os.Args[0])
	check(t, err)
	check(t, os.WriteFile(program, contents, 0o755))
	nobody := startChild(t, dir, func(cmd *exec.Cmd) {
		cmd.Path = program
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	})
	nobody.must(t, "dial", "denied")
	nobody.must(t, "bind", "bind in "+dir+": permission denied: run as root, and look for denials of SELinux or AppArmor")
}

// L8: a directory removed below a mount keeps its path. Proves the look at the
// link count.
func TestDirectoryRemovedBelowTheMount(t *testing.T) {
	host, dir := shortDir(t), shortDir(t)
	registry := filepath.Join(host, "plugins_registry")
	check(t, os.Mkdir(registry, 0o700))
	mount(t, registry, dir, "", unix.MS_BIND, "")
	p := newPlace(t, dir)
	unborn := bind(t, p)
	check(t, os.RemoveAll(registry))
	check(t, os.Mkdir(registry, 0o700))
	_, err := p.Stat()
	wantErr(t, err, ErrDirGone)
	wantWords(t, err, "below this mount", "restart the container")
	_, err = p.Bind()
	wantErr(t, err, ErrDirGone)
	wantErr(t, p.Publish(unborn, ID{}), ErrDirGone)
}

// L8: what tells on overlayfs may be only that a bind says "no such file".
func TestDirectoryRemovedBelowTheMountOnOverlayfs(t *testing.T) {
	for _, layer := range []string{"upper", "lower"} {
		t.Run(layer, func(t *testing.T) {
			base, dir := shortDir(t), shortDir(t)
			mount(t, "none", base, "tmpfs", 0, "") // Overlayfs does not go on top of itself.
			for _, name := range []string{"lower", "upper", "work", "merged", layer + "/plugins_registry"} {
				check(t, os.Mkdir(filepath.Join(base, name), 0o755))
			}
			merged := filepath.Join(base, "merged")
			mount(t, "overlay", merged, "overlay", 0, "lowerdir="+base+"/lower,upperdir="+base+"/upper,workdir="+base+"/work")
			registry := filepath.Join(merged, "plugins_registry")
			mount(t, registry, dir, "", unix.MS_BIND, "")
			p := newPlace(t, dir)
			check(t, os.RemoveAll(registry))
			check(t, os.Mkdir(registry, 0o700))
			_, err := p.Stat()
			t.Logf("stat says: %v", err)
			_, err = p.Bind()
			wantErr(t, err, ErrDirGone)
			wantWords(t, err, "restart the container")
		})
	}
}

// All of it works on overlayfs and tmpfs too.
func TestOtherFileSystems(t *testing.T) {
	for _, kind := range []string{"tmpfs", "overlay"} {
		t.Run(kind, func(t *testing.T) {
			dir := shortDir(t)
			mount(t, "none", dir, "tmpfs", 0, "")
			if kind == "overlay" {
				for _, name := range []string{"l", "u", "w", "m"} {
					check(t, os.Mkdir(filepath.Join(dir, name), 0o755))
				}
				mount(t, "overlay", dir+"/m", "overlay", 0, "lowerdir="+dir+"/l,upperdir="+dir+"/u,workdir="+dir+"/w")
				dir += "/m"
			}
			p := newPlace(t, dir)
			first := published(t, p)
			wantMine(t, p, first, true)
			second := bind(t, p)
			check(t, p.Publish(second, stat(t, p)))
			wantMine(t, p, first, false)
			wantMine(t, p, second, true)
			wantDial(t, p.Path(), Connected)
			wantErr(t, p.Publish(bind(t, p), ID{}), ErrExists)
			if err := p.Publish(bind(t, p), first.ID()); !errors.Is(err, ErrChanged) {
				t.Fatal(err)
			}
			check(t, second.Close())
			check(t, p.Remove(stat(t, p)))
			wantOnly(t, dir)
		})
	}
}
