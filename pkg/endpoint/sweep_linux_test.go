package endpoint

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func temp(n *Names, digits string) string { return n.temp + digits + tempEnd }

// Proves each condition on the name, the kind, the target and the age.
func TestSweep(t *testing.T) {
	n := newNames(t, shortDir(t))
	old := time.Now().Add(-time.Hour)
	put := func(path, text string, made time.Time) {
		check(t, os.Symlink(text, path))
		when := unix.NsecToTimespec(made.UnixNano())
		check(t, unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{when, when}, unix.AT_SYMLINK_NOFOLLOW))
	}
	want := []string{temp(n, "00112233"), temp(n, "deadbeef")}
	put(want[0], "csi.sock", old)
	put(want[1], ".csi.sock.1", old)
	put(n.link, "csi.sock", old)
	put(temp(n, "11111111"), "csi.sock", time.Now()) // Too young.
	put(temp(n, "22222222"), "../csi.sock", old)     // To elsewhere.
	for _, name := range []string{
		".csi.sock.ep.0011223.tmp", ".csi.sock.ep.0011223g.tmp", ".csi.sock.ep.001122334.tmp", ".csi.sock.ep.00112233", ".csi.sock.ep.00112233.tm",
		"csi.sock.ep.00112233.tmp", ".csi.sock.1.00112233.tmp", ".other.ep.00112233.tmp", ".csi.sock.ep.ep.00112233.tmp", ".csi.sock.7",
	} {
		put(filepath.Join(n.dir, name), "csi.sock", old)
	}
	digits := 0
	for _, obstacle := range obstacles(t) {
		path := temp(n, fmt.Sprintf("aaaaaaa%d", digits))
		digits++
		obstacle(path)
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() != fs.ModeSymlink {
			check(t, os.Chtimes(path, old, old))
		}
	}
	leave(t, temp(n, "bbbbbbbb"))
	check(t, os.Chtimes(temp(n, "bbbbbbbb"), old, old))
	before, err := os.ReadDir(n.dir)
	check(t, err)

	removed, err := n.Sweep(time.Minute)
	check(t, err)
	if !slices.Equal(removed, want) {
		t.Fatalf("swept %q, want %q", removed, want)
	}
	after, err := os.ReadDir(n.dir)
	check(t, err)
	if len(after) != len(before)-len(want) {
		t.Fatalf("%d names are left of %d", len(after), len(before))
	}
	if removed, err := n.Sweep(time.Minute); err != nil || len(removed) != 0 {
		t.Fatalf("swept %q (%v)", removed, err)
	}
}

// A peer may sweep at the same time.
func TestSweptByAPeer(t *testing.T) {
	n := newNames(t, shortDir(t))
	check(t, os.Symlink("csi.sock", temp(n, "00112233")))
	at(n, "judged", func() { check(t, os.Remove(temp(n, "00112233"))) })
	removed, err := n.Sweep(0)
	if err != nil || len(removed) != 0 {
		t.Errorf("swept %q, %v", removed, err)
	}
}
