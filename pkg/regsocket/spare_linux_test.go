package regsocket

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// greet accepts until s is closed, and says who to everybody. What it returns
// gets nil when Accept has ended because s was closed.
func greet(s *Socket, who string) chan error {
	ended := make(chan error, 1)
	go func() {
		for {
			conn, err := s.Accept()
			if errors.Is(err, net.ErrClosed) {
				err = nil
			} else if err == nil {
				_, _ = io.WriteString(conn, who)
				_ = conn.Close()
				continue
			}
			ended <- err
			return
		}
	}()
	return ended
}

// greeted dials and returns who answers. An error of the dial is fatal: nobody
// may be refused.
func greeted(t *testing.T, p *Place) string {
	t.Helper()
	conn, err := p.Dial(context.Background())
	check(t, err)
	defer conn.Close()
	check(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	who, err := io.ReadAll(conn)
	check(t, err)
	return string(who)
}

func wantGreeting(t *testing.T, p *Place, want string) {
	t.Helper()
	if got := greeted(t, p); got != want {
		t.Fatalf("%q answers, want %q", got, want)
	}
}

func spareOf(t *testing.T, s *Socket) *Spare {
	t.Helper()
	sp, err := s.Spare()
	check(t, err)
	t.Cleanup(func() { _ = sp.Close() })
	return sp
}

func listen(t *testing.T, sp *Spare) *Socket {
	t.Helper()
	s, err := sp.Listen()
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// fileOf is a copy of the descriptor, as it comes out of a control message.
func fileOf(t *testing.T, of controller) *os.File {
	t.Helper()
	fd, err := duplicate(of)
	check(t, err)
	return os.NewFile(uintptr(fd), "received")
}

// holder is another process with a spare of the socket at the path.
func holder(t *testing.T, p *Place, sp *Spare) *child {
	t.Helper()
	file := fileOf(t, sp)
	defer file.Close()
	c := startChild(t, p.dir, func(cmd *exec.Cmd) { cmd.ExtraFiles = []*os.File{file} })
	c.must(t, "adopt "+sp.ID().String(), "ok")
	return c
}

// freeze returns once the child has stopped: the signal alone does not wait.
func freeze(t *testing.T, c *child) {
	t.Helper()
	check(t, c.cmd.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	check(t, err)
	if !status.Stopped() {
		t.Fatalf("not stopped: %v", status)
	}
}

func flagsOf(t *testing.T, of controller) (status, descriptor int) {
	t.Helper()
	var statusErr, descriptorErr error
	check(t, of.Control(func(fd uintptr) {
		status, statusErr = unix.FcntlInt(fd, unix.F_GETFL, 0)
		descriptor, descriptorErr = unix.FcntlInt(fd, unix.F_GETFD, 0)
	}))
	check(t, errors.Join(statusErr, descriptorErr))
	return status, descriptor
}

func wantNonBlocking(t *testing.T, of controller) {
	t.Helper()
	if status, descriptor := flagsOf(t, of); status&unix.O_NONBLOCK == 0 || descriptor&unix.FD_CLOEXEC == 0 {
		t.Fatalf("flags %o, descriptor flags %o", status, descriptor)
	}
}

// Two processes hold one listener, and each in turn accepts alone. A Close in one
// returns at once although Accept waits, which it would not if anything had made
// the descriptor blocking (L1), and refuses nobody in the other.
func TestTwoProcessesHoldOneListener(t *testing.T) {
	p := newPlace(t, shortDir(t))
	first := published(t, p)
	sp := spareOf(t, first)
	ended := greet(first, "first")
	wantGreeting(t, p, "first")
	c := holder(t, p, sp)
	for range 10 {
		c.must(t, "listen", "ok")
		c.must(t, "mine", "ok")
		check(t, first.Close())
		check(t, <-ended)
		wantGreeting(t, p, "child")

		first = listen(t, sp)
		wantMine(t, p, first, true)
		ended = greet(first, "first")
		c.must(t, "stop", "ok")
		wantGreeting(t, p, "first")
		wantNonBlocking(t, sp)
	}
	c.must(t, "drop", "ok")
	wantGreeting(t, p, "first")
	check(t, sp.Close())
	wantGreeting(t, p, "first")
	check(t, first.Close())
	check(t, <-ended)
	wantDial(t, p.Path(), Refused) // By now nobody holds a copy.
}

// L6: whoever waits in the queue of a killed acceptor is answered by the spare.
func TestQueueOfAKilledAcceptor(t *testing.T) {
	p := newPlace(t, shortDir(t))
	s := published(t, p)
	sp := spareOf(t, s)
	c := holder(t, p, sp)
	check(t, s.Close())
	c.must(t, "listen", "ok")
	wantGreeting(t, p, "child")
	freeze(t, c)
	var conns []net.Conn
	for range 50 {
		conn, err := p.Dial(context.Background())
		check(t, err)
		conns = append(conns, conn)
	}
	c.kill()
	ended := greet(listen(t, sp), "spare")
	for _, conn := range conns {
		check(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
		who, err := io.ReadAll(conn)
		if err != nil || string(who) != "spare" {
			t.Errorf("answered by %q (%v)", who, err)
		}
		check(t, conn.Close())
	}
	if len(ended) != 0 {
		t.Error("the new acceptor has ended")
	}
}

// The acceptor is killed while dials run as fast as they can: none is refused, and
// none waits for an answer in vain but the one that the killed process had in hand.
func TestKilledWhileOthersDial(t *testing.T) {
	const rounds, dialers = 10, 3
	p := newPlace(t, shortDir(t))
	s := published(t, p)
	sp := spareOf(t, s)
	current, ended := s, greet(s, "spare")
	for range rounds {
		c := holder(t, p, sp)
		c.must(t, "listen", "ok")
		check(t, current.Close())
		check(t, <-ended)

		var dialed, stop sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		results := make(chan map[string]int, dialers)
		dialed.Add(dialers)
		for range dialers {
			stop.Go(func() { results <- dialOn(ctx, p, dialed.Done) })
		}
		dialed.Wait() // Each was answered by the child once.
		c.kill()
		current = listen(t, sp)
		ended = greet(current, "spare")
		wantGreeting(t, p, "spare") // It comes after those who waited.
		cancel()
		stop.Wait()
		close(results)
		total := map[string]int{}
		for got := range results {
			for what, times := range got {
				total[what] += times
			}
		}
		if total["child"] < dialers || total["lost"] > 1 || len(total) > 3 {
			t.Errorf("answers: %v", total)
		}
	}
	check(t, current.Close())
	check(t, <-ended)
}

// dialOn counts what becomes of dials, one after the other, until ctx is done.
func dialOn(ctx context.Context, p *Place, first func()) map[string]int {
	results := map[string]int{}
	for first != nil || ctx.Err() == nil {
		conn, err := p.Dial(context.Background())
		if err != nil {
			results[ClassifyDial(err).String()]++ // Refused, above all.
		} else {
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			who, err := io.ReadAll(conn)
			_ = conn.Close()
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded):
				results["unanswered"]++
			case err != nil || len(who) == 0:
				results["lost"]++
			default:
				results[string(who)]++
			}
		}
		if first != nil {
			first()
			first = nil
		}
	}
	return results
}

// Two may accept at once: everybody is answered, by one of them.
func TestTwoAcceptAtOnce(t *testing.T) {
	p := newPlace(t, shortDir(t))
	s := published(t, p)
	c := holder(t, p, spareOf(t, s))
	c.must(t, "listen", "ok")
	ended := greet(s, "parent")
	answers := map[string]int{}
	for range 300 {
		answers[greeted(t, p)]++
	}
	if answers["parent"]+answers["child"] != 300 {
		t.Errorf("answers: %v", answers)
	}
	t.Logf("answers: %v", answers)
	check(t, s.Close())
	check(t, <-ended)
	wantGreeting(t, p, "child")
}

// Nothing that is done with copies makes the description blocking, not even for a
// moment: another process would hang in accept then (L1).
func TestCopiesNeverBlock(t *testing.T) {
	p := newPlace(t, shortDir(t))
	s := published(t, p)
	sp := spareOf(t, s)
	stop, sampled := make(chan struct{}), make(chan int)
	go func() {
		blocking := 0
		for {
			select {
			case <-stop:
				sampled <- blocking
				return
			default:
			}
			if status, _ := flagsOf(t, sp); status&unix.O_NONBLOCK == 0 {
				blocking++
			}
		}
	}()
	for range 200 {
		adopted, err := p.AdoptSpare(fileOf(t, sp), sp.ID())
		check(t, err)
		wantNonBlocking(t, adopted)
		wantCloseOnExec(t)
		again, err := adopted.Listen()
		check(t, err)
		check(t, adopted.Close())
		other, err := again.Spare()
		check(t, err)
		check(t, other.Close())
		check(t, again.Close())
	}
	close(stop)
	if n := <-sampled; n != 0 {
		t.Errorf("%d times the descriptor was blocking", n)
	}
}

// A socket made of a spare is one of ours in all but the temporary name.
func TestSocketOfASpare(t *testing.T) {
	p, elsewhere := newPlace(t, shortDir(t)), newPlace(t, shortDir(t))
	s := published(t, p)
	sp := spareOf(t, s)
	check(t, s.Close())
	wantMine(t, p, s, false)
	again := listen(t, sp)
	wantMine(t, p, again, true)
	if again.ID() != stat(t, p) || sp.ID() != stat(t, p) {
		t.Error("another ID")
	}
	wantWords(t, p.Publish(again, ID{}), "is published or closed")
	wantWords(t, p.Publish(again, stat(t, p)), "is published or closed")
	wantOnly(t, p.dir, filepath.Base(p.Path()))

	published(t, elsewhere)
	wantMine(t, elsewhere, again, false)
	check(t, p.Publish(bind(t, p), stat(t, p)))
	wantMine(t, p, again, false)
	replacement := stat(t, p)
	check(t, again.Close())
	check(t, sp.Close())
	if stat(t, p) != replacement {
		t.Error("what stands at the path was touched")
	}
	wantErr(t, sp.Close(), net.ErrClosed)
	wantErr(t, sp.Control(func(uintptr) { t.Error("called") }), net.ErrClosed)
	_, err := sp.Listen()
	wantErr(t, err, net.ErrClosed)
	_, err = s.Spare()
	wantErr(t, err, net.ErrClosed)
}

// L3: a spare alone pins the inode, so that its number is nobody else's.
func TestSparePinsTheInode(t *testing.T) {
	p := newPlace(t, shortDir(t))
	s := published(t, p)
	sp := spareOf(t, s)
	check(t, s.Close())
	check(t, p.Remove(stat(t, p)))
	for range 20 {
		leave(t, p.Path())
		if stat(t, p).SameInode(sp.ID()) {
			t.Fatal("the number was given to another file")
		}
		check(t, os.Remove(p.Path()))
	}
}
