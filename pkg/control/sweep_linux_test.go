package control

import (
	"context"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSweep(t *testing.T) {
	p := newPlace(t)
	dead := startChild(t, p.dir)
	left := dead.ask(t, "listen")
	frozen := startChild(t, p.dir)
	stays := frozen.ask(t, "listen")
	frozen.freeze(t)
	own := listen(t, p, 1)
	check(t, os.WriteFile(p.path(p.name(1, 2)), nil, 0o600))
	leave(t, p.path(".x-reg.1.1.ctl"))
	leave(t, p.path("."+driver+"-reg.0123abcd.tmp"))
	removed, err := p.Sweep(soon(t))
	if err != nil || len(removed) != 0 {
		t.Fatalf("swept %q, %v", removed, err)
	}
	dead.kill()
	names, err := p.Names()
	check(t, err)
	if len(names) != 3 {
		t.Errorf("names: %q", names)
	}
	began := time.Now()
	removed, err = p.Sweep(soon(t))
	check(t, err)
	if strings.Join(removed, " ") != p.path(left) {
		t.Errorf("swept %q, want %s", removed, left)
	}
	if took := time.Since(began); took < sweepPause {
		t.Errorf("only %v between the refusals", took)
	}
	names, err = p.Names()
	check(t, err)
	if len(names) != 2 {
		t.Errorf("left: %q, want %s and %s", names, own.Name(), stays)
	}
	check(t, os.Remove(own.path))
	_, err = (&Place{dir: p.path("absent"), driver: driver}).Sweep(soon(t))
	wantErr(t, err, fs.ErrNotExist)
}

// Proves the second refusal and the two comparisons.
func TestSweepLooksAgain(t *testing.T) {
	for step, change := range map[string]func(t *testing.T, p *Place, path string){
		"refused": func(t *testing.T, p *Place, path string) { // It listens.
			check(t, os.Remove(path))
			listen(t, p, 1)
		},
		"refused again": func(t *testing.T, _ *Place, path string) { // It is another.
			check(t, os.Rename(path, path+".old"))
			leave(t, path)
		},
	} {
		t.Run(step, func(t *testing.T) {
			p := newPlace(t)
			path := p.path(p.name(1, 1))
			leave(t, path)
			p.at = func(reached string) {
				if reached == step {
					p.at = func(string) {}
					change(t, p, path)
				}
			}
			removed, err := p.Sweep(soon(t))
			if err != nil || len(removed) != 0 {
				t.Errorf("swept %q, %v", removed, err)
			}
		})
	}
	p := newPlace(t) // The same one listens, which was slow to.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	defer unix.Close(fd)
	check(t, unix.Bind(fd, &unix.SockaddrUnix{Name: p.path(p.name(1, 1))}))
	p.at = func(string) { check(t, unix.Listen(fd, 1)) }
	removed, err := p.Sweep(soon(t))
	if err != nil || len(removed) != 0 {
		t.Errorf("swept %q, %v", removed, err)
	}

	p = newPlace(t)
	leave(t, p.path(p.name(1, 1)))
	ctx, cancel := context.WithCancel(context.Background())
	p.at = func(string) { cancel() }
	_, err = p.Sweep(ctx)
	wantErr(t, err, context.Canceled)
	wantOnly(t, p, p.name(1, 1))
}
