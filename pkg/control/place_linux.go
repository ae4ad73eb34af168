package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxPath is what fits into a unix socket address, without the final zero byte
// (unix(7)).
const maxPath = 107

// fileID tells one socket file from another: device, inode number and time of
// change, which tells a number that was given to another file.
type fileID struct {
	dev, ino uint64
	changed  int64
}

func (a fileID) sameInode(b fileID) bool { return a.dev == b.dev && a.ino == b.ino }

// identify returns the ID of the socket at path; links are not followed.
func identify(path string) (fileID, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return fileID{}, err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fileID{}, fmt.Errorf("%w, mode %v: it was left as it is, move it away or remove it", ErrNotSocket, info.Mode())
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}, errors.New("no inode number")
	}
	return fileID{dev: uint64(stat.Dev), ino: stat.Ino, changed: stat.Ctim.Nano()}, nil
}

// ownName is the name of the control socket of process pid.
func (p *Place) ownName(pid int) (string, error) {
	info, err := os.Stat("/proc/self/ns/mnt")
	if err != nil {
		return "", fmt.Errorf("which mount namespace this is takes a mounted /proc: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", errors.New("the mount namespace has no number")
	}
	return p.name(stat.Ino, pid), nil
}

// address returns an address for name in the directory that fits into a unix
// socket address, and a function that ends its validity.
func (p *Place) address(name string) (string, func(), error) {
	path := p.path(name)
	if len(path) <= maxPath {
		return path, func() {}, nil
	}
	fd, err := unix.Open(p.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	dir := "/proc/self/fd/" + strconv.Itoa(fd)
	path = dir + "/" + name
	if len(path) > maxPath {
		err = fmt.Errorf("%w: no CSI driver name this long is valid", unix.ENAMETOOLONG)
	} else if unix.Access(dir, unix.F_OK) != nil { // Else it would read as a directory that is gone.
		err = errors.New("the path is long, which takes a mounted /proc: mount the directory at a shorter path")
	}
	if err != nil {
		_ = unix.Close(fd)
		return "", nil, err
	}
	return path, func() { _ = unix.Close(fd) }, nil
}

// connect connects once; it never waits for the peer. A full queue is EAGAIN.
func (p *Place) connect(ctx context.Context, name string) (*net.UnixConn, error) {
	address, done, err := p.address(name)
	if err != nil {
		return nil, err
	}
	defer done()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", address)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// Dial connects to the control socket of that name. The error wraps ErrName,
// ErrStranger, or that of the system call: syscall.ENOENT, syscall.ECONNREFUSED if
// nobody listens, syscall.EAGAIN if too many wait already. It does not wait for
// the peer, so success does not mean that it works.
func (p *Place) Dial(ctx context.Context, name string) (*Conn, error) {
	if !p.isName(name) {
		return nil, fmt.Errorf("connect to %q: %w", name, ErrName)
	}
	conn, err := p.connect(ctx, name)
	if err == nil {
		if err = sameUser(conn); err == nil {
			return newConn(conn, func() {}), nil
		}
		_ = conn.Close()
	}
	return nil, fmt.Errorf("connect to %s: %w", p.path(name), err)
}

// sameUser returns nil if the process that dialled, or that called listen, had our
// effective user then. A user that does not exist in our user namespace reads as
// 65534 (user_namespaces(7)).
func sameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		peer, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return credErr
	}
	if own := os.Geteuid(); int(peer.Uid) != own {
		return fmt.Errorf("%w: %d, and %d here", ErrStranger, peer.Uid, own)
	}
	return nil
}

func unlink(path string) error {
	for {
		if err := unix.Unlink(path); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
