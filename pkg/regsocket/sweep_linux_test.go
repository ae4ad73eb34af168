package regsocket

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func temp(p *Place, digits string) string {
	return filepath.Join(p.dir, p.tempStart()+digits+tempEnd)
}

func wantSwept(t *testing.T, p *Place, want ...string) {
	t.Helper()
	got, err := p.Sweep(context.Background())
	check(t, err)
	if !slices.Equal(got, want) {
		t.Fatalf("swept %q, want %q", got, want)
	}
	for _, path := range want {
		wantAbsent(t, path)
	}
}

// Proves each condition on the name and the type: only the first two go.
func TestSweep(t *testing.T) {
	p := newPlace(t, shortDir(t))
	leave(t, temp(p, "00112233"))
	leave(t, temp(p, "deadbeef"))
	var keep []string
	for _, name := range []string{
		driver + "-reg.sock",               // The registration socket, though dead.
		"." + driver + "-reg.0011223.tmp",  // A digit less.
		"." + driver + "-reg.0011223g.tmp", // Not a digit.
		"." + driver + "-reg.00112233.tm",
		"." + driver + "-reg.00112233",
		"." + driver + "-reg.00112233.ctl",
		driver + "-reg.00112233.tmp",
		"00112233.tmp",
		".other." + driver + "-reg.00112233.tmp",
		"." + driver + "-reg.x-reg.00112233.tmp",
	} {
		keep = append(keep, filepath.Join(p.dir, name))
		leave(t, keep[len(keep)-1])
	}
	digits := 0
	for _, put := range obstacles(t) {
		path := temp(p, "aaaaaaa"+string(rune('0'+digits)))
		digits++
		put(path)
		keep = append(keep, path)
	}
	keep = append(keep, temp(p, "bbbbbbbb"))
	fillBacklog(t, keep[len(keep)-1])
	bind(t, p) // Listens.
	keep = append(keep, "")

	wantSwept(t, p, temp(p, "00112233"), temp(p, "deadbeef"))
	entries, err := os.ReadDir(p.dir)
	check(t, err)
	left := slices.DeleteFunc(entries, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".to") })
	if len(left) != len(keep) {
		t.Fatalf("%d names are left, want %d: %v", len(left), len(keep), left)
	}
	at(p, "refused", func() { t.Error("it pauses for nothing") })
	wantSwept(t, p)
}

// What crashed is swept; what is frozen is not.
func TestSweepCrashedAndFrozen(t *testing.T) {
	p := newPlace(t, shortDir(t))
	c := startChild(t, p.dir)
	c.must(t, "bind", "ok")
	left := tempOf(t, p)
	check(t, c.cmd.Process.Signal(syscall.SIGSTOP))
	wantSwept(t, p)
	c.kill()
	wantSwept(t, p, left)
}

// Proves the second refusal, and the pause before it.
func TestSweepLeavesWhatListensLater(t *testing.T) {
	p, slow := newPlace(t, shortDir(t)), newPlace(t, "/x")
	slow.dir = p.dir
	refused, listens, bound := make(chan struct{}), make(chan struct{}), make(chan struct{})
	at(slow, "private", func() { close(bound); <-refused })
	go func() {
		defer close(listens)
		s, err := slow.Bind()
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = s.Close() })
	}()
	<-bound
	at(p, "refused", func() { close(refused); <-listens })
	wantSwept(t, p)
	wantDial(t, tempOf(t, p), Connected)
}

func TestSweepPause(t *testing.T) {
	p := newPlace(t, shortDir(t))
	leave(t, temp(p, "00112233"))
	var first, second time.Time
	p.seams.at = func(step string) {
		if step == "refused" {
			first = time.Now()
		} else {
			second = time.Now()
		}
	}
	wantSwept(t, p, temp(p, "00112233"))
	if pause := second.Sub(first); pause < 100*time.Millisecond {
		t.Fatalf("only %v between the refusals", pause)
	}
}

// Proves the two comparisons of the whole ID.
func TestSweepLeavesAnotherUnderTheSameName(t *testing.T) {
	for _, step := range []string{"refused", "refused again"} {
		t.Run(step, func(t *testing.T) {
			p := newPlace(t, shortDir(t))
			path := temp(p, "00112233")
			leave(t, path)
			at(p, step, func() {
				check(t, os.Rename(path, path+".old")) // Another inode for sure.
				leave(t, path)
			})
			wantSwept(t, p)
			if _, err := os.Lstat(path); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestSweepEndsWithCtx(t *testing.T) {
	p := newPlace(t, shortDir(t))
	path := temp(p, "00112233")
	leave(t, path)
	for _, step := range []string{"none", "refused"} {
		ctx, cancel := context.WithCancel(context.Background())
		if step == "none" {
			cancel()
		}
		at(p, step, cancel)
		removed, err := p.Sweep(ctx)
		cancel()
		wantErr(t, err, context.Canceled)
		if step == "refused" {
			wantWords(t, err, "sweep "+p.dir) // At once, without the pause.
		}
		if len(removed) != 0 {
			t.Errorf("swept %q", removed)
		}
	}
	wantSwept(t, p, path)
}
