package control

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func mustEncode(t *testing.T, f Frame) []byte {
	t.Helper()
	b, err := encode(f)
	check(t, err)
	return b
}

func wantFrame(t *testing.T, c *Conn, want Frame) {
	t.Helper()
	got, file, err := c.Receive(soon(t))
	check(t, err)
	if fmt.Sprint(got) != fmt.Sprint(want) || file != nil {
		t.Fatalf("got %+v with %v, want %+v", got, file, want)
	}
}

// Whoever does not begin with Hello is hung up on at once.
func TestRubbishInPlaceOfHello(t *testing.T) {
	p := newPlace(t)
	l := listen(t, p, 1)
	version := mustEncode(t, Hello{})
	version[2]++
	for name, data := range map[string][]byte{
		"rubbish":       []byte("GET / HTTP/1.1\r\n\r\n"),
		"zeros":         make([]byte, 100),
		"another major": version,
		"too long":      {'h', 'f', 1, 1, 255, 255, 255, 255},
		"bad JSON":      frame(kindHello, "{"),
		"another frame": mustEncode(t, Goodbye{}),
	} {
		conn := rawDial(t, l)
		began := time.Now()
		_, err := conn.Write(data)
		check(t, err)
		if !ended(conn) {
			t.Errorf("%s: the connection stays", name)
		}
		if took := time.Since(began); took > helloWithin/2 {
			t.Errorf("%s: it took %v", name, took)
		}
	}
	for range 100 { // Dials and is gone, as a look does.
		check(t, rawDial(t, l).Close())
	}
	nobodyComes(t, l)
	check(t, dial(t, p, l).Send(soon(t), Hello{}))
	c, _, err := l.Accept(soon(t))
	check(t, err)
	c.Close()
}

// Whoever is not done with Hello within a second is hung up on: silent, in the
// middle, or a byte at a time.
func TestSlowHello(t *testing.T) {
	p := newPlace(t)
	l := listen(t, p, 1)
	hello := mustEncode(t, Hello{Instance: "slow"})
	var all sync.WaitGroup
	began := time.Now()
	for _, bytes := range []int{0, 1, headerSize, len(hello) - 1} {
		conn := rawDial(t, l)
		_, err := conn.Write(hello[:bytes])
		check(t, err)
		all.Go(func() {
			if !ended(conn) {
				t.Errorf("%d bytes: the connection stays", bytes)
			}
		})
	}
	dripping := rawDial(t, l)
	all.Go(func() { // Ends with an error once the other side has hung up.
		for i := 0; ; i++ {
			if _, err := dripping.Write(hello[i%4 : i%4+1]); err != nil || i == len(hello)-1 {
				if err == nil {
					t.Error("dripping went on")
				}
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	all.Wait()
	if took := time.Since(began); took < helloWithin || took > 10*helloWithin {
		t.Errorf("it took %v", took)
	}
	nobodyComes(t, l)
}

// A frame may come a byte at a time, if it does so in time.
func TestHelloAByteAtATime(t *testing.T) {
	p := newPlace(t)
	l := listen(t, p, 1)
	conn := rawDial(t, l)
	unknown := frame(200, "from a later release")
	for _, b := range append(unknown, mustEncode(t, Hello{Instance: "a"})...) {
		_, err := conn.Write([]byte{b})
		check(t, err)
	}
	c, hello, err := l.Accept(soon(t))
	check(t, err)
	defer c.Close()
	if hello.Instance != "a" {
		t.Errorf("got %+v", hello)
	}
}

// Fifty at once, each heard and answered, half of them rubbish.
func TestFiftyAtOnce(t *testing.T) {
	p := newPlace(t)
	l := listen(t, p, 1)
	var all sync.WaitGroup
	for i := range 50 {
		if i%2 == 1 {
			conn := rawDial(t, l)
			all.Go(func() {
				_, _ = conn.Write([]byte("rubbish, and enough of it"))
				if !ended(conn) {
					t.Error("rubbish stays")
				}
			})
			continue
		}
		c := dial(t, p, l)
		name := fmt.Sprint(i)
		all.Go(func() {
			if err := c.Send(soon(t), Hello{Instance: name}); err != nil {
				t.Error(err)
			}
			got, _, err := c.Receive(soon(t))
			if err != nil || got != (Publish{Reason: name}) {
				t.Errorf("%s: got %+v, %v", name, got, err)
			}
		})
	}
	for range 25 {
		c, hello, err := l.Accept(soon(t))
		check(t, err)
		check(t, c.Send(soon(t), Publish{Reason: hello.Instance}))
		defer c.Close()
	}
	all.Wait()
	nobodyComes(t, l)
}

// The 65th is hung up on; a place is free again once one is closed.
func TestSixtyFifthConnection(t *testing.T) {
	p := newPlace(t)
	l := listen(t, p, 1)
	accepted := make([]*Conn, maxConns)
	for i := range accepted {
		check(t, dial(t, p, l).Send(soon(t), Hello{}))
		var err error
		accepted[i], _, err = l.Accept(soon(t))
		check(t, err)
		defer accepted[i].Close()
	}
	for range 3 {
		if !ended(rawDial(t, l)) {
			t.Fatal("the 65th connection stays")
		}
	}
	accepted[7].Close()
	accepted[7].Close() // Frees one place, not two.
	check(t, dial(t, p, l).Send(soon(t), Hello{Instance: "next"}))
	c, hello, err := l.Accept(soon(t))
	check(t, err)
	defer c.Close()
	if hello.Instance != "next" {
		t.Errorf("got %+v", hello)
	}
	if !ended(rawDial(t, l)) {
		t.Error("the 65th connection stays")
	}
}

// Those that say nothing take the places for a second, and no longer.
func TestSilentOnesMakeRoom(t *testing.T) {
	p := newPlace(t)
	l := listen(t, p, 1)
	var silent []*net.UnixConn
	for range maxConns {
		silent = append(silent, rawDial(t, l))
	}
	if !ended(rawDial(t, l)) {
		t.Error("the 65th connection stays")
	}
	for _, conn := range silent {
		if !ended(conn) {
			t.Fatal("a silent one stays")
		}
	}
	check(t, dial(t, p, l).Send(soon(t), Hello{}))
	c, _, err := l.Accept(soon(t))
	check(t, err)
	c.Close()
}

// Too many open files are no reason to stop accepting.
func TestAcceptWithoutDescriptors(t *testing.T) {
	p := newPlace(t)
	l := listen(t, p, 1)
	dialer := startChild(t, p.dir)
	var limit unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}))
	restored := false
	restore := func() {
		if !restored {
			restored = true
			check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
		}
	}
	defer restore()
	dialer.must(t, "dial "+l.Name(), "ok")
	dialer.must(t, "hello a", "ok")
	nobodyComes(t, l)
	restore()
	c, hello, err := l.Accept(soon(t))
	check(t, err)
	defer c.Close()
	if hello.Instance != "a" {
		t.Errorf("got %+v", hello)
	}
}

func TestNothingIsLostByAccepting(t *testing.T) {
	p := newPlace(t)
	l := listen(t, p, 1)
	before := openFiles(t)
	for range 20 {
		conn := rawDial(t, l)
		_, _ = io.WriteString(conn, strings.Repeat("rubbish", 10))
		ended(conn)
		check(t, conn.Close())
		d := dial(t, p, l)
		check(t, d.Send(soon(t), Hello{}))
		c, _, err := l.Accept(soon(t))
		check(t, err)
		d.Close()
		wantDone(t, c)
		c.Close()
	}
	check(t, l.Close())
	if len(l.slots) != 0 {
		t.Errorf("%d places are taken", len(l.slots))
	}
	wantFiles(t, before-1)
}
