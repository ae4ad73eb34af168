package node

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// Pack writes a scratch image as a docker-archive: one static binary at /name,
// which is the entry point. No registry, no builder, and no time goes into it.
func Pack(w io.Writer, ref, binary string) error {
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	name := filepath.Base(binary)
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	if err := addFile(tw, name, content, 0o755); err != nil {
		return err
	}
	if err := tw.Close(); err != nil {
		return err
	}
	digest := fmt.Sprintf("%x", sha256.Sum256(layer.Bytes()))
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/" + name}, "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest}},
	})
	if err != nil {
		return err
	}
	configName := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest, err := json.Marshal([]map[string]any{{
		"Config": configName, "RepoTags": []string{ref}, "Layers": []string{digest + ".tar"},
	}})
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	for _, f := range []struct {
		name    string
		content []byte
	}{{configName, config}, {digest + ".tar", layer.Bytes()}, {"manifest.json", manifest}} {
		if err := addFile(out, f.name, f.content, 0o644); err != nil {
			return err
		}
	}
	return out.Close()
}

func addFile(tw *tar.Writer, name string, content []byte, mode int64) error {
	if err := tw.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err := tw.Write(content)
	return err
}

// Load imports docker or OCI archives into containerd.
func (n *Node) Load(ctx context.Context, archives ...string) error {
	snapshotter, err := n.snapshotter(ctx)
	if err != nil {
		return err
	}
	for _, a := range archives {
		began := time.Now()
		cmd := exec.CommandContext(ctx, "ctr", "--address="+n.path("containerd.sock"), "--namespace=k8s.io",
			"images", "import", "--snapshotter="+snapshotter, a)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("import the image %s: %w\n%s", a, err, out)
		}
		n.Say("imported %s (%.1f s)", filepath.Base(a), time.Since(began).Seconds())
	}
	return nil
}

// loadPause builds the sandbox's program and imports its image.
func (n *Node) loadPause(ctx context.Context) error {
	binary, archive := n.path("bin", "pause"), n.path("pause.tar")
	if err := n.goBuild(ctx, "the pause image", binary, "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "./cmd/pause"); err != nil {
		return err
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := Pack(f, PauseImage, binary); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = n.await(ctx, "containerd", func(ctx context.Context) bool {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", n.path("containerd.sock"))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	return n.Load(ctx, archive)
}
