package regsocket

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// tempEnd ends a temporary name, which is ".<driver>-reg.<8 hex digits>.tmp".
	tempEnd    = ".tmp"
	tempDigits = 8
	// sweepPause lies between the two refusals: one instance that has bound and
	// does not listen yet refuses too, for microseconds.
	sweepPause = 100 * time.Millisecond
)

// tempName returns a new temporary name, without the directory.
func (p *Place) tempName() string {
	var random [tempDigits / 2]byte
	_, _ = rand.Read(random[:]) // Never fails (crypto/rand, since Go 1.24).
	return p.tempStart() + hex.EncodeToString(random[:]) + tempEnd
}

func (p *Place) tempStart() string { return "." + p.driver + "-reg." }

// isTemp reports whether name is a temporary name of this driver. Since the
// middle has a fixed length, no other driver has it.
func (p *Place) isTemp(name string) bool {
	middle, ok := strings.CutPrefix(name, p.tempStart())
	if !ok {
		return false
	}
	middle, ok = strings.CutSuffix(middle, tempEnd)
	return ok && len(middle) == tempDigits && strings.Trim(middle, "0123456789abcdef") == ""
}

// Sweep removes the sockets that instances of this driver left under temporary
// names when they crashed, and returns their paths. A socket goes only if it
// refused a connection twice, at least 100 ms apart, and was the same both times
// and at the end. Nothing else is ever touched. It returns early, with ctx's
// error, when ctx is done.
//
// An instance that is frozen for so long between binding and listening loses its
// temporary name; its Publish fails then, and it can bind anew.
func (p *Place) Sweep(ctx context.Context) (removed []string, err error) {
	entries, err := os.ReadDir(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, p.errDirGone("it does not exist")
	}
	if err != nil {
		return nil, explain("read", p.dir, err)
	}
	dead := map[string]ID{}
	var paths []string
	for _, entry := range entries {
		if !p.isTemp(entry.Name()) {
			continue
		}
		path := filepath.Join(p.dir, entry.Name())
		if id, refused := p.refuses(ctx, entry.Name()); refused {
			dead[path] = id
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		return nil, ctx.Err()
	}
	p.seams.at("refused")
	pause := time.NewTimer(sweepPause)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("sweep %s: %w", p.dir, ctx.Err())
	case <-pause.C:
	}
	var failures []error
	for _, path := range paths {
		if _, refused := p.refuses(ctx, filepath.Base(path)); !refused {
			continue
		}
		p.seams.at("refused again")
		if id, err := identify(path); err != nil || id != dead[path] {
			continue
		}
		if err := unlink(path); err != nil {
			failures = append(failures, explain("remove", path, err))
			continue
		}
		removed = append(removed, path)
	}
	return removed, errors.Join(append(failures, ctx.Err())...)
}

// refuses reports whether name in the directory is a socket on which nobody
// listens, and which.
func (p *Place) refuses(ctx context.Context, name string) (ID, bool) {
	id, err := identify(filepath.Join(p.dir, name))
	if err != nil {
		return ID{}, false
	}
	address, done, err := p.address(name)
	if err != nil {
		return ID{}, false
	}
	defer done()
	conn, err := dial(ctx, address)
	if err == nil {
		_ = conn.Close()
	}
	return id, ClassifyDial(err) == Refused
}
