package endpoint

import "testing"

// Proves that each number has one name, and that 529 is not the symlink's.
func TestSecondNames(t *testing.T) {
	n := newNames(t, shortDir(t))
	for _, ino := range []uint64{1, 35, 36, 528, 529, 530, 1 << 40, 1<<64 - 1} {
		name := n.second(ino)
		if got, ok := n.inode(name); !ok || got != ino {
			t.Errorf("%s: got %d, %v", name, got, ok)
		}
		if name == n.LinkName() {
			t.Errorf("inode %d has the link's name", ino)
		}
	}
}

// Also where the directory adds nothing to the path.
func TestTemporaryNames(t *testing.T) {
	n, err := NewNames("csi.sock")
	check(t, err)
	for name, want := range map[string]bool{
		".csi.sock.ep.00112233.tmp": true, "00112233.tmp": false, n.newTemp(): true, n.LinkName(): false,
	} {
		if got := n.isTemp(name); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func FuzzSecondName(f *testing.F) {
	n, err := NewNames("/csi/csi.sock")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{".csi.sock.ep", ".csi.sock.0ep", ".csi.sock.1", "csi.sock", ".csi.sock.00", ".csi.sock.+1", ".csi.sock.1_0"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		ino, ok := n.inode(name)
		if ok && (ino == 0 || n.second(ino) != name || n.isTemp("/csi/"+name) || name == n.LinkName()) {
			t.Errorf("%q means %d", name, ino)
		}
	})
}
