package node

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestPack: the archive names its parts by their digests, and the same binary
// gives the same archive.
func TestPack(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(binary, []byte("#!"), 0o700); err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, w := range []io.Writer{&first, &second} {
		if err := Pack(w, "localhost/x:y", binary); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of one binary differ")
	}
	files := map[string][]byte{}
	for r := tar.NewReader(&first); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name], _ = io.ReadAll(r)
	}
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil || len(manifest) != 1 {
		t.Fatalf("manifest.json %s: %v", files["manifest.json"], err)
	}
	m := manifest[0]
	if m.RepoTags[0] != "localhost/x:y" || m.Config != fmt.Sprintf("%x.json", sha256.Sum256(files[m.Config])) {
		t.Errorf("manifest %+v", m)
	}
	var config struct {
		Config struct{ Entrypoint []string }
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(files[m.Config], &config); err != nil {
		t.Fatal(err)
	}
	if got, want := config.Rootfs.DiffIDs[0], fmt.Sprintf("sha256:%x", sha256.Sum256(files[m.Layers[0]])); got != want {
		t.Errorf("diff ID %s, want %s", got, want)
	}
	if config.Config.Entrypoint[0] != "/program" {
		t.Errorf("entry point %v", config.Config.Entrypoint)
	}
}
