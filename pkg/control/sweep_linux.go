package control

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// sweepPause lies between the two refusals: an instance that has bound and does
// not listen yet refuses too, for microseconds.
const sweepPause = 100 * time.Millisecond

// Names returns the names of this driver's control sockets, our own included,
// sorted. Not all of them need to have a listener.
func (p *Place) Names() ([]string, error) {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return nil, fmt.Errorf("look for control sockets: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if p.isName(entry.Name()) && entry.Type() == os.ModeSocket {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// Sweep removes the control sockets of this driver on which nobody listens, and
// returns their paths. One goes only if it refused a connection twice, at least
// 100 ms apart, and was the same both times and at the end. Nothing else is ever
// touched. It returns early, with ctx's error, when ctx is done.
func (p *Place) Sweep(ctx context.Context) (removed []string, err error) {
	names, err := p.Names()
	if err != nil {
		return nil, err
	}
	return p.sweep(ctx, names)
}

func (p *Place) sweep(ctx context.Context, names []string) (removed []string, err error) {
	dead := map[string]fileID{}
	for _, name := range names {
		if id, refused := p.refuses(ctx, name); refused {
			dead[name] = id
		}
	}
	if len(dead) == 0 {
		return nil, ctx.Err()
	}
	p.at("refused")
	pause := time.NewTimer(sweepPause)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("sweep %s: %w", p.dir, ctx.Err())
	case <-pause.C:
	}
	var failures []error
	for _, name := range names {
		if dead[name] == (fileID{}) {
			continue
		}
		if _, refused := p.refuses(ctx, name); !refused {
			continue
		}
		p.at("refused again")
		if id, err := identify(p.path(name)); err != nil || id != dead[name] {
			continue
		}
		if err := unlink(p.path(name)); err != nil {
			failures = append(failures, fmt.Errorf("remove %s: %w", p.path(name), err))
			continue
		}
		removed = append(removed, p.path(name))
	}
	return removed, errors.Join(append(failures, ctx.Err())...)
}

// refuses reports whether name is a socket on which nobody listens, and which.
func (p *Place) refuses(ctx context.Context, name string) (fileID, bool) {
	id, err := identify(p.path(name))
	if err != nil {
		return fileID{}, false
	}
	conn, err := p.connect(ctx, name)
	if err == nil {
		_ = conn.Close()
	}
	return id, errors.Is(err, unix.ECONNREFUSED)
}
