package endpoint

import (
	"path/filepath"
	"testing"
)

func TestPaths(t *testing.T) {
	n, err := NewNames(filepath.FromSlash("/csi//x/../csi.sock"))
	check(t, err)
	if got := n.LinkName(); got != ".csi.sock.ep" {
		t.Errorf("the link is %s", got)
	}
	for want, got := range map[string]string{
		"/csi/.csi.sock.ep":            n.LinkPath(),
		"/csi/csi.sock":                n.Path(ID{}),
		"/csi/.csi.sock.1":             n.Path(ID{Ino: 1}),
		"/csi/.csi.sock.zz":            n.Path(ID{Dev: 5, Ino: 35*36 + 35, Made: 7}),
		"/csi/.csi.sock.3w5e11264sgsf": n.Path(ID{Ino: 1<<64 - 1}),
		"/csi/.csi.sock.eo":            n.Path(ID{Ino: 528}),
		"/csi/.csi.sock.0ep":           n.Path(ID{Ino: 529}), // Not the symlink's.
		"/csi/.csi.sock.eq":            n.Path(ID{Ino: 530}),
	} {
		if filepath.ToSlash(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	other, err := NewNames("/csi/csi_sock")
	check(t, err)
	if got := other.LinkName(); got != ".csi_sock.ep" {
		t.Errorf("the link is %s", got)
	}
}

func TestNewNamesRefuses(t *testing.T) {
	for path, says := range map[string]string{
		"": "no path", "/": "no path", ".": "no path", "/csi/..": "no path", "/csi\x00/csi.sock": "NUL",
	} {
		_, err := NewNames(path)
		wantWords(t, err, says)
	}
}

func TestWords(t *testing.T) {
	for want, got := range map[string]string{
		"1:2@3": ID{1, 2, 3}.String(), "no link": NoLink.String(), "to the socket": ToSocket.String(),
		"to a second name": ToName.String(), "foreign": Foreign.String(), "unknown": TargetKind(9).String(),
		"unheard": Unheard.String(), "listens": Listens.String(), "refuses": Refuses.String(), "gone": Gone.String(),
		"busy": Busy.String(), "denied": Denied.String(), "unclear": Unclear.String(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
