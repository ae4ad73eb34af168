package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Dial connects once to the inode id through its second name, for as long as ctx
// lasts; with the zero ID to whatever csi.sock is. The error wraps ErrChanged if
// id does not have its second name (any more), ErrDirGone, or the errno.
func (n *Names) Dial(ctx context.Context, id ID) (net.Conn, error) {
	address, done, err := n.address(id)
	if err != nil {
		return nil, err
	}
	defer done()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", address)
	if err != nil {
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			err = op.Err // The address may be a descriptor's, which tells nobody anything.
		}
		return nil, explain("connect to", n.Path(id), err)
	}
	return conn, nil
}

// Probe connects once to the inode id through its second name, with the zero ID
// to whatever csi.sock is, and hangs up. It waits for nobody and sends nothing;
// it takes microseconds.
func (n *Names) Probe(id ID) Life {
	address, done, err := n.address(id)
	if err != nil {
		return lifeOf(err)
	}
	defer done()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Unclear
	}
	defer unix.Close(fd)
	err = retry(func() error { return unix.Connect(fd, &unix.SockaddrUnix{Name: address}) })
	n.seams.at("connected")
	return lifeOf(err)
}

func lifeOf(err error) Life {
	switch {
	case err == nil:
		return Listens
	case errors.Is(err, unix.ECONNREFUSED):
		return Refuses
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrChanged), errors.Is(err, ErrDirGone):
		return Gone
	case errors.Is(err, unix.EAGAIN):
		return Busy
	case errors.Is(err, fs.ErrPermission):
		return Denied
	}
	return Unclear
}

// address returns an address of the inode id, and a function that ends its
// validity. It goes through a descriptor of the file: that is the inode which
// was judged whatever stands at the name by now, and is short.
func (n *Names) address(id ID) (string, func(), error) {
	path := n.Path(id)
	if id == (ID{}) && len(path) <= maxPath {
		return path, func() {}, nil
	}
	file, err := n.open("connect to", path, id)
	if err != nil {
		return "", nil, err
	}
	address, err := addressOf("connect to", file)
	if err != nil {
		_ = file.Close()
		return "", nil, err
	}
	return address, func() { _ = file.Close() }, nil
}

// open returns a descriptor of the socket at path that is good for naming it
// only. The error wraps ErrChanged unless it is exactly id; the zero ID means
// whatever is there.
func (n *Names) open(operation, path string, id ID) (*os.File, error) {
	flags := unix.O_PATH | unix.O_CLOEXEC
	if id != (ID{}) {
		flags |= unix.O_NOFOLLOW
	}
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Open(path, flags, 0)
		return err
	})
	if err != nil {
		return nil, n.notIt(operation, path, err)
	}
	file := os.NewFile(uintptr(fd), path)
	if id == (ID{}) {
		return file, nil
	}
	info, err := file.Stat()
	if err == nil {
		if there, ok := idOf(info); ok && there == id {
			return file, nil
		}
	}
	_ = file.Close()
	return nil, n.notIt(operation, path, err)
}

// addressOf returns a path of what is open, whatever stands at its name.
func addressOf(operation string, file *os.File) (string, error) {
	address := "/proc/self/fd/" + strconv.FormatUint(uint64(file.Fd()), 10)
	if unix.Access(address, unix.F_OK) != nil { // Else it would seem that the socket is gone.
		return "", fmt.Errorf("%s %s: %w", operation, file.Name(), errNoProc)
	}
	return address, nil
}

var errNoProc = errors.New("this takes a mounted /proc: mount one, or set --keep-endpoint=false")
