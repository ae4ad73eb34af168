package control

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/node-driver-registrar/pkg/regsocket"
)

// null gives descriptors of /dev/null to be sent.
func null(t *testing.T, n int) []int {
	t.Helper()
	fds := make([]int, n)
	for i := range fds {
		var err error
		fds[i], err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		check(t, err)
		t.Cleanup(func() { _ = unix.Close(fds[i]) })
	}
	return fds
}

// rawPair is an accepted Conn and the bare other side.
func rawPair(t *testing.T) (*net.UnixConn, *Conn) {
	t.Helper()
	l := listen(t, newPlace(t), 1)
	conn := rawDial(t, l)
	_, err := conn.Write(mustEncode(t, Hello{}))
	check(t, err)
	accepted, _, err := l.Accept(soon(t))
	check(t, err)
	t.Cleanup(accepted.Close)
	return conn, accepted
}

func sendRaw(t *testing.T, conn *net.UnixConn, data []byte, fds ...int) {
	t.Helper()
	n, _, err := conn.WriteMsgUnix(data, unix.UnixRights(fds...), nil)
	check(t, err)
	if n != len(data) {
		t.Fatalf("%d of %d bytes were sent", n, len(data))
	}
}

// wantFiles says how many descriptors are open.
func wantFiles(t *testing.T, want int) {
	t.Helper()
	if got := openFiles(t); got != want {
		t.Errorf("%d descriptors are open, want %d", got, want)
	}
}

// The whole of a handover: the socket at the path goes on in other hands.
func TestHandover(t *testing.T) {
	a, b := pair(t)
	place, err := regsocket.New(newPlace(t).dir, driver)
	check(t, err)
	socket, err := place.Bind()
	check(t, err)
	check(t, place.Publish(socket, regsocket.ID{}))
	spare, err := socket.Spare()
	check(t, err)
	id := spare.ID()
	sent := Handover{Dev: id.Dev, Ino: id.Ino, Changed: id.Changed, Kubelet: Kubelet{State: Confirmed}}
	check(t, a.SendWith(soon(t), sent, spare.Control))
	check(t, spare.Close())
	check(t, socket.Close())
	waiting, err := place.Dial(soon(t)) // Nobody accepts; nobody is refused.
	check(t, err)
	defer waiting.Close()

	got, file, err := b.Receive(soon(t))
	check(t, err)
	if got != sent || file == nil {
		t.Fatalf("got %+v with %v", got, file)
	}
	raw, err := file.SyscallConn()
	check(t, err)
	check(t, raw.Control(func(fd uintptr) {
		if flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a child would inherit it: %o, %v", flags, err)
		}
	}))
	adopted, err := place.AdoptSpare(file, id)
	check(t, err)
	defer adopted.Close()
	again, err := adopted.Listen()
	check(t, err)
	defer again.Close()
	conn, err := again.Accept()
	check(t, err)
	defer conn.Close()
	if mine, _, err := place.Mine(again); err != nil || !mine {
		t.Errorf("mine: %v, %v", mine, err)
	}
}

// Descriptors that were not asked for are closed, and change nothing else.
func TestUnexpectedDescriptors(t *testing.T) {
	conn, accepted := rawPair(t)
	fds := null(t, maxFiles)
	before := openFiles(t)
	for _, n := range []int{1, 2, maxFiles} {
		sendRaw(t, conn, mustEncode(t, News{}), fds[:n]...)
		wantFrame(t, accepted, News{})
		wantFiles(t, before)
		sendRaw(t, conn, frame(200, "later"), fds[:n]...)
		ready := mustEncode(t, Ready{Nonce: 1})
		sendRaw(t, conn, ready[:3], fds[:n]...) // In pieces.
		sendRaw(t, conn, ready[3:10], fds[:n]...)
		sendRaw(t, conn, ready[10:], fds[:n]...)
		wantFrame(t, accepted, Ready{Nonce: 1})
		wantFiles(t, before)
	}
}

// Of more than one the first counts.
func TestSurplusDescriptors(t *testing.T) {
	conn, accepted := rawPair(t)
	fds := null(t, maxFiles)
	reads, err := os.CreateTemp(t.TempDir(), "first")
	check(t, err)
	defer reads.Close()
	fds[0], err = unix.Open(reads.Name(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	check(t, err)
	defer unix.Close(fds[0])
	before := openFiles(t)
	for _, n := range []int{1, 2, maxFiles} {
		sendRaw(t, conn, mustEncode(t, Handover{Ino: 5}), fds[:n]...)
		got, file, err := accepted.Receive(soon(t))
		check(t, err)
		if got != (Handover{Ino: 5}) {
			t.Errorf("got %+v", got)
		}
		wantFiles(t, before+1)
		first, err := file.Stat()
		check(t, err)
		want, err := reads.Stat()
		check(t, err)
		if !os.SameFile(first, want) {
			t.Error("it is not the first")
		}
		check(t, file.Close())
	}
}

// What ends a connection closes the descriptors that came.
func TestDescriptorsOfABrokenFrame(t *testing.T) {
	fds := null(t, 50)
	tooLong := mustEncode(t, Handover{})
	tooLong[4] = 1
	goodbye := mustEncode(t, Goodbye{})
	for name, c := range map[string]struct {
		data []byte
		fds  int
		want error
		says string
	}{
		"none":                {mustEncode(t, Handover{}), 0, ErrRubbish, "without a descriptor"},
		"bad JSON":            {frame(kindHandover, "{"), 1, ErrRubbish, "JSON"},
		"rubbish":             {[]byte("rubbish!"), 2, ErrRubbish, "begins with"},
		"too long":            {tooLong, 1, ErrTooLong, ""},
		"one too many":        {mustEncode(t, Handover{}), maxFiles + 1, ErrRubbish, "more descriptors"},
		"many":                {mustEncode(t, Handover{}), 50, ErrRubbish, "more descriptors"},
		"many with a byte":    {mustEncode(t, Handover{})[:1], 50, ErrRubbish, "more descriptors"},
		"many with a header":  {mustEncode(t, Handover{})[:headerSize], 50, ErrRubbish, "more descriptors"},
		"many, not asked for": {goodbye, 50, ErrRubbish, "more descriptors"},
		"many with the end":   {goodbye[headerSize:], 50, ErrRubbish, "more descriptors"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, accepted := rawPair(t)
			before := openFiles(t)
			if strings.HasPrefix(string(c.data), "{") {
				sendRaw(t, conn, goodbye[:headerSize])
			}
			sendRaw(t, conn, c.data, fds[:c.fds]...)
			_, _, err := accepted.Receive(soon(t))
			wantErr(t, err, c.want)
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
			wantFiles(t, before-1) // And the connection.
		})
	}
}

// What nobody fetches is closed by Close.
func TestDescriptorsNobodyFetches(t *testing.T) {
	conn, accepted := rawPair(t)
	fds := null(t, 1)
	before := openFiles(t)
	for range 3 * queued {
		sendRaw(t, conn, mustEncode(t, Handover{}), fds...)
	}
	accepted.Close()
	wantFiles(t, before-1)

	l := listen(t, newPlace(t), 1)
	before = openFiles(t)
	stranger := rawDial(t, l)
	sendRaw(t, stranger, mustEncode(t, Handover{}), fds...) // Not the first frame to come.
	if !ended(stranger) {
		t.Error("the connection stays")
	}
	check(t, stranger.Close())
	check(t, l.Close())
	wantFiles(t, before-1)
}

// A descriptor that cannot be had is the caller's error, and changes nothing.
func TestSendWithout(t *testing.T) {
	a, b := pair(t)
	none := errors.New("closed")
	err := a.SendWith(soon(t), Handover{}, func(func(uintptr)) error { return none })
	wantErr(t, err, none)
	err = a.SendWith(soon(t), Handover{}, func(f func(uintptr)) error { f(^uintptr(0) >> 1); return nil })
	wantErr(t, err, unix.EBADF)
	check(t, a.Send(soon(t), Goodbye{}))
	wantFrame(t, b, Goodbye{})

	fds := null(t, 1)
	give := func(f func(uintptr)) error { f(uintptr(fds[0])); return nil }
	before := openFiles(t)
	wantErr(t, a.SendWith(soon(t), Handover{Kubelet: Kubelet{Words: strings.Repeat("x", maxBody)}}, give), ErrTooLong)
	wantFiles(t, before)
	b.Close()
	wantDone(t, a)
	if err := a.SendWith(context.Background(), Handover{}, give); err == nil {
		t.Error("sent to nobody")
	}
	wantFiles(t, before-2)
}
