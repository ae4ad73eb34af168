package endpoint

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// obstacles are what somebody else might put at a name.
func obstacles(t *testing.T) map[string]func(path string) {
	t.Helper()
	all := map[string]func(string){
		"a regular file": func(path string) { check(t, os.WriteFile(path, []byte("precious"), 0o600)) },
		"a directory":    func(path string) { check(t, os.Mkdir(path, 0o700)) },
		"a named pipe":   func(path string) { check(t, unix.Mkfifo(path, 0o600)) },
		"a symbolic link": func(path string) { // Even to a socket.
			leave(t, path+".to")
			check(t, os.Symlink(path+".to", path))
		},
	}
	if os.Geteuid() == 0 {
		all["a device"] = func(path string) {
			check(t, unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))) // null
		}
	}
	return all
}

func TestOddSocket(t *testing.T) {
	for name, put := range obstacles(t) {
		t.Run(name, func(t *testing.T) {
			n := newNames(t, shortDir(t))
			put(n.socket)
			same := untouched(t, n.socket)
			l := read(t, n)
			if l.Socket != (ID{}) || l.Named {
				t.Fatalf("got %+v", l)
			}
			wantWords(t, l.SocketOdd, "not a socket but "+name)
			info, err := os.Lstat(n.socket)
			check(t, err)
			stat := info.Sys().(*syscall.Stat_t)
			id := ID{Dev: uint64(stat.Dev), Ino: stat.Ino, Made: stat.Mtim.Nano()}
			wantErr(t, n.Pin(id), ErrChanged) // Proves that only sockets have an ID.
			check(t, n.Turn(noLink, toSocket))
			check(t, os.Remove(n.link))
			same()
		})
	}
}

// Proves, for each kind, that what stands at a second name is left alone and not
// followed.
func TestForeignSecondName(t *testing.T) {
	kinds := obstacles(t)
	kinds["a socket"] = func(path string) { listen(t, path) } // Of another inode.
	for name, put := range kinds {
		t.Run(name, func(t *testing.T) {
			n := newNames(t, shortDir(t))
			listen(t, n.socket)
			id := read(t, n).Socket
			path := n.Path(id)
			put(path)
			same := untouched(t, path)
			wantRead(t, n, Listing{Socket: id})
			err := n.Pin(id)
			wantErr(t, err, ErrForeign)
			wantWords(t, err, path, name, "move it away")
			wantErr(t, n.Remove(id), ErrChanged)
			wantErr(t, n.Turn(noLink, toName(id)), ErrChanged)
			_, err = n.Dial(context.Background(), id)
			wantErr(t, err, ErrChanged)
			if got := n.Probe(id); got != Gone {
				t.Errorf("probe: %v", got)
			}
			same()
			check(t, os.Symlink(filepath.Base(path), n.link))
			wantRead(t, n, Listing{Socket: id, Link: toName(ID{Ino: id.Ino})})
		})
	}
}

// The second name of one's own, but a symlink, to the very inode.
func TestSymlinkAsSecondName(t *testing.T) {
	n := newNames(t, shortDir(t))
	listen(t, n.socket)
	id := read(t, n).Socket
	check(t, os.Symlink("csi.sock", n.Path(id)))
	wantErr(t, n.Pin(id), ErrForeign)
	if got := n.Probe(id); got != Gone { // Proves O_NOFOLLOW.
		t.Errorf("probe: %v", got)
	}
	wantRead(t, n, Listing{Socket: id})
}

// Proves that what is not a symlink of ours is never replaced.
func TestForeignLink(t *testing.T) {
	kinds := obstacles(t)
	kinds["a socket"] = func(path string) { leave(t, path) }
	for _, text := range []string{
		"./csi.sock", "../csi.sock", "csi.sock.old", "/run/csi.sock", ".csi.sock.", ".csi.sock.0", ".csi.sock.01", ".csi.sock.A",
		".csi.sock.ep", ".csi.sock.-1", ".csi.sock.3w5e11264sgsg", ".csi.sock.1/", "./.csi.sock.1", ".csi.sock.ep.00112233.tmp", ".other.sock.1",
	} {
		kinds["a symbolic link, "+text] = func(path string) { check(t, os.Symlink(text, path)) }
	}
	for name, put := range kinds {
		t.Run(name, func(t *testing.T) {
			n := newNames(t, shortDir(t))
			id, _ := pinned(t, n)
			put(n.link)
			entries, err := os.ReadDir(n.dir)
			check(t, err)
			same := untouched(t, n.link)
			if got := read(t, n).Link; got != (Target{Kind: Foreign}) {
				t.Fatalf("got %+v", got)
			}
			for _, from := range []Target{noLink, toSocket, toName(id), {Kind: Foreign}} {
				err := n.Turn(from, toSocket)
				wantErr(t, err, ErrForeign)
				wantWords(t, err, n.link, name[:8], "move it away")
			}
			same()
			after, err := os.ReadDir(n.dir)
			check(t, err)
			if len(after) != len(entries) {
				t.Errorf("left: %v", after)
			}
		})
	}
}
