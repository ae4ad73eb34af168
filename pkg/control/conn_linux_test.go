package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// now is a ctx that is done.
func now() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Every kind, both ways at once, several senders and receivers in each.
func TestFramesBothWaysAtOnce(t *testing.T) {
	a, b := pair(t)
	const rounds, senders = 20, 2
	var all sync.WaitGroup
	for _, c := range []*Conn{a, b} {
		for range senders {
			all.Go(func() {
				for range rounds {
					for _, f := range golden() {
						if _, ok := f.(Handover); ok {
							continue
						}
						if err := c.Send(soon(t), f); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
			all.Go(func() {
				for range rounds * (len(golden()) - 1) {
					got, file, err := c.Receive(soon(t))
					if err != nil || file != nil {
						t.Error(err)
						return
					}
					if want := golden()[strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", got), "control."))]; !reflect.DeepEqual(got, want) {
						t.Errorf("got %+v, want %+v", got, want)
					}
				}
			})
		}
	}
	all.Wait()
}

// What ctx ends, and what not.
func TestReceiveAndItsCtx(t *testing.T) {
	a, b := pair(t)
	_, _, err := b.Receive(now())
	wantErr(t, err, context.Canceled)
	check(t, a.Send(soon(t), Ready{Nonce: 7}))
	wantFrame(t, b, Ready{Nonce: 7}) // The connection goes on.
	check(t, a.Send(soon(t), Ready{Nonce: 8}))
	for len(b.in) == 0 {
		time.Sleep(time.Millisecond)
	}
	got, _, err := b.Receive(now()) // What has come is returned, though.
	check(t, err)
	if got != (Ready{Nonce: 8}) {
		t.Errorf("got %+v", got)
	}
}

// What ends a connection after its first frame.
func TestRubbishLater(t *testing.T) {
	version := mustEncode(t, Goodbye{})
	version[2] = 9
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"rubbish":       {[]byte("rubbish!"), ErrRubbish},
		"another major": {version, ErrVersion},
		"too long":      {[]byte{'h', 'f', 1, 1, 0, 1, 0, 0}, ErrTooLong},
		"bad JSON":      {frame(kindNews, "[]"), ErrRubbish},
		"half a header": {[]byte("hf"), io.ErrUnexpectedEOF},
		"half a frame":  {mustEncode(t, Goodbye{})[:9], io.ErrUnexpectedEOF},
		"nothing":       {nil, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			l := listen(t, p, 1)
			conn := rawDial(t, l)
			_, err := conn.Write(append(mustEncode(t, Hello{}), append(mustEncode(t, Ready{Nonce: 1}), c.data...)...))
			check(t, err)
			accepted, _, err := l.Accept(soon(t))
			check(t, err)
			defer accepted.Close()
			wantFrame(t, accepted, Ready{Nonce: 1}) // What came before counts.
			if errors.Is(c.want, io.ErrUnexpectedEOF) || errors.Is(c.want, io.EOF) {
				check(t, conn.Close())
			} else if !ended(conn) {
				t.Error("it is not hung up on")
			}
			wantEnd(t, accepted, c.want)
			wantEnd(t, accepted, c.want) // Again.
			if err := accepted.Send(soon(t), Goodbye{}); err == nil {
				t.Error("sent after the end")
			}
		})
	}
}

// Half a frame, and then silence, is silence: it costs the time of ctx.
func TestHalfAFrameThenSilence(t *testing.T) {
	p := newPlace(t)
	l := listen(t, p, 1)
	conn := rawDial(t, l)
	news := mustEncode(t, News{})
	_, err := conn.Write(append(mustEncode(t, Hello{}), news[:20]...))
	check(t, err)
	accepted, _, err := l.Accept(soon(t))
	check(t, err)
	defer accepted.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	_, _, err = accepted.Receive(ctx)
	wantErr(t, err, context.DeadlineExceeded)
	check(t, accepted.Send(soon(t), Publish{})) // The other way goes on.
	_, err = conn.Write(news[20:])
	check(t, err)
	wantFrame(t, accepted, News{})
}

// A frozen peer costs the time of ctx, and ends nothing; its death is noticed.
func TestFrozenPeer(t *testing.T) {
	p := newPlace(t)
	c := startChild(t, p.dir)
	name := c.ask(t, "listen")
	conn, err := p.Dial(soon(t), name)
	check(t, err)
	defer conn.Close()
	check(t, conn.Send(soon(t), Hello{Instance: "a"}))
	c.must(t, "accept", "a")
	c.freeze(t)

	late, err := p.Dial(soon(t), name) // It looks like anybody else.
	check(t, err)
	defer late.Close()
	check(t, late.Send(soon(t), Hello{Instance: "late"}))

	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, _, err = conn.Receive(ctx)
	wantErr(t, err, context.DeadlineExceeded)
	select {
	case <-conn.Done():
		t.Error("a frozen peer has ended")
	default:
	}
	check(t, conn.Send(soon(t), Ready{Nonce: 1})) // There is room in the kernel.
	err = fill(late, 50*time.Millisecond)
	wantErr(t, err, context.DeadlineExceeded)
	wantEnd(t, late, context.DeadlineExceeded) // Half a frame may have gone.
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a frozen peer held us for %v", took)
	}
	c.kill()
	wantDone(t, conn)
	if _, _, err := conn.Receive(soon(t)); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("after its death: %v", err)
	}
}

// fill sends until it fails, each frame for that long.
func fill(c *Conn, within time.Duration) error {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		err := c.Send(ctx, Publish{Reason: strings.Repeat("x", 15<<10)})
		cancel()
		if err != nil {
			return err
		}
	}
}

// A peer that does not read: every sender that waits is released by its own ctx,
// by the default if there is none, and by Close.
func TestPeerThatDoesNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		ctx   func() (context.Context, context.CancelFunc)
		close bool
		want  error
	}{
		"deadline": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), 50*time.Millisecond)
		}, false, context.DeadlineExceeded},
		"cancel": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		}, false, context.Canceled},
		"none": {func() (context.Context, context.CancelFunc) { return context.Background(), func() {} }, false, context.DeadlineExceeded},
		"close": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), time.Hour)
		}, true, net.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			l := listen(t, p, 1)
			conn := rawDial(t, l)
			_, err := conn.Write(mustEncode(t, Hello{}))
			check(t, err)
			accepted, _, err := l.Accept(soon(t))
			check(t, err)
			defer accepted.Close()
			ctx, cancel := c.ctx()
			defer cancel()
			var all sync.WaitGroup
			for range 3 { // One writes, the others wait for it.
				all.Go(func() {
					for {
						if err := accepted.Send(ctx, Publish{Reason: strings.Repeat("x", 1<<10)}); err != nil {
							if !errors.Is(err, c.want) && !errors.Is(err, net.ErrClosed) {
								t.Error(err)
							}
							return
						}
					}
				})
			}
			if c.close {
				time.AfterFunc(50*time.Millisecond, accepted.Close)
			}
			began := time.Now()
			all.Wait()
			if took := time.Since(began); took > 10*sendWithin {
				t.Errorf("it took %v", took)
			}
			wantEnd(t, accepted, c.want)
		})
	}
}

// The end of a process is noticed though nobody receives, also behind frames that
// nobody has read yet; and those can be received afterwards.
func TestKilledPeerIsNoticed(t *testing.T) {
	for _, unread := range []int{0, 1, queued, queued + 1, 5 * queued} {
		t.Run(fmt.Sprint(unread), func(t *testing.T) {
			p := newPlace(t)
			l := listen(t, p, 1)
			c := startChild(t, p.dir)
			c.must(t, "dial "+l.Name(), "ok")
			c.must(t, "hello a", "ok")
			conn, _, err := l.Accept(soon(t))
			check(t, err)
			defer conn.Close()
			c.must(t, fmt.Sprintf("news %d", unread), "ok")
			select {
			case <-conn.Done():
				t.Fatal("it has not ended yet")
			default:
			}
			began := time.Now()
			c.kill()
			wantDone(t, conn)
			t.Logf("noticed %v after the signal", time.Since(began))
			for range unread {
				wantFrame(t, conn, News{})
			}
			wantEnd(t, conn, io.EOF)
		})
	}
}

// A ctx that is done ends the connection, whether or not the frame went: else the
// peer could miss what was said, and never know.
func TestSendAndItsCtx(t *testing.T) {
	a, b := pair(t)
	wantErr(t, a.Send(now(), News{}), context.Canceled)
	wantEnd(t, a, context.Canceled)
	wantDone(t, b)
}

// A frame that does not fit into the kernel's buffer goes in pieces.
func TestFrameInPieces(t *testing.T) {
	a, b := pair(t)
	check(t, a.conn.SetWriteBuffer(1)) // The least that there is.
	fds := null(t, 1)
	long := Handover{Ino: 7, Kubelet: Kubelet{Words: strings.Repeat("x", 15<<10)}}
	for range 3 {
		check(t, a.SendWith(soon(t), long, func(f func(uintptr)) error { f(uintptr(fds[0])); return nil }))
		got, file, err := b.Receive(soon(t))
		check(t, err)
		if got != long || file == nil {
			t.Fatalf("got %+v with %v", got, file)
		}
		check(t, file.Close())
	}
}

// What a peer said last is heard, also after a Send has found it gone.
func TestLastWords(t *testing.T) {
	a, b := pair(t)
	for range 2 * queued {
		check(t, a.Send(soon(t), Goodbye{}))
	}
	a.Close()
	wantDone(t, b)
	wantErr(t, b.Send(soon(t), News{}), unix.EPIPE)
	for range 2 * queued {
		wantFrame(t, b, Goodbye{})
	}
	wantEnd(t, b, io.EOF)
}

func TestClose(t *testing.T) {
	a, b := pair(t)
	received := make(chan error)
	go func() {
		_, _, err := b.Receive(context.Background())
		received <- err
	}()
	b.Close()
	wantErr(t, <-received, net.ErrClosed)
	wantDone(t, b)
	b.Close()
	wantErr(t, b.Send(soon(t), Goodbye{}), net.ErrClosed)
	wantEnd(t, a, io.EOF)

	a, b = pair(t) // With more than is read.
	for range 3 * queued {
		check(t, a.Send(soon(t), Goodbye{}))
	}
	b.Close()
	wantDone(t, a)
	wantEnd(t, b, net.ErrClosed)
}

// A frame that cannot be sent by anybody changes nothing.
func TestSendWhatIsNoFrame(t *testing.T) {
	a, b := pair(t)
	wantErr(t, a.Send(soon(t), Publish{Reason: strings.Repeat("x", maxBody)}), ErrTooLong)
	if err := a.Send(soon(t), Hello{Started: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Error("a time that JSON does not have was sent")
	}
	if err := a.Send(soon(t), Handover{}); err == nil {
		t.Error("a Handover without a descriptor was sent")
	}
	check(t, a.Send(soon(t), Goodbye{}))
	wantFrame(t, b, Goodbye{})
}
