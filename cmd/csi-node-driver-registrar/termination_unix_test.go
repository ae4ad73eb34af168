//go:build !windows

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTerminationLogIsAFIFO: neither one without a reader, where an open for
// writing would wait, nor one with is written to.
func TestTerminationLogIsAFIFO(t *testing.T) {
	name := filepath.Join(t.TempDir(), "termination-log")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeTerminationLog(name, "why"); !errors.Is(err, unix.ENXIO) {
		t.Errorf("without a reader: %v, want ENXIO", err)
	}
	reader, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := writeTerminationLog(name, "why"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("with a reader: %v, want %v", err, fs.ErrInvalid)
	}
}
