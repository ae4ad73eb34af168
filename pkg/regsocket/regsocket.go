package regsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

var (
	// ErrAbsent says that nothing stands at the path.
	ErrAbsent = errors.New("no registration socket there")
	// ErrNotSocket says that something other than a socket stands at the path.
	// It was left as it is.
	ErrNotSocket = errors.New("not a socket")
	// ErrDirGone says that the directory is not there any more, or was removed
	// below a mount, so that nothing can ever be bound in it again. Only a restart
	// of the container mounts it afresh.
	ErrDirGone = errors.New("the registration directory is gone")
	// ErrExists says that something stands at the path: somebody else was first.
	ErrExists = errors.New("something is there already")
	// ErrChanged says that what stands at the path is not what was judged.
	ErrChanged = errors.New("the registration socket is another one by now")
)

// maxPath is what fits into a unix socket address, without the final zero byte
// (unix(7); Windows has the same).
const maxPath = 107

// ID tells one socket file from another. It is comparable; the zero ID means
// that there is nothing.
type ID struct {
	// Dev and Ino are the device and the inode number. File systems give the
	// number of a removed file to the next one at once.
	Dev, Ino uint64
	// Changed is the time of the last change of the inode (ctime), in nanoseconds
	// since 1970. It tells a reused number, but also moves when the file is
	// renamed, linked, or given another mode or owner.
	Changed int64
}

// SameInode reports whether a and b have the same device and inode number. That
// means the same file only while something pins the inode, as an open listener
// does.
func (a ID) SameInode(b ID) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

// String is for logs.
func (a ID) String() string { return fmt.Sprintf("%d:%d@%d", a.Dev, a.Ino, a.Changed) }

// Place is where the registration socket of one driver belongs. It is immutable
// and safe for concurrent use.
type Place struct {
	dir, driver, path string
	seams             seams
}

// seams are told of each step between two system calls, in tests.
type seams struct {
	at func(step string)
	// noRename makes renameat2 say that it is not supported.
	noRename bool
}

// New returns the Place <dir>/<driver>-reg.sock, without touching it.
func New(dir, driver string) (*Place, error) {
	switch {
	case dir == "":
		return nil, errors.New("registration socket: no directory given")
	case driver == "":
		return nil, errors.New("registration socket: no driver name given")
	case strings.ContainsAny(driver, "/\\\x00") || strings.Contains(dir, "\x00"):
		return nil, fmt.Errorf("registration socket: driver name %q cannot be part of a file name", driver)
	}
	path := filepath.Join(dir, driver+"-reg.sock")
	if len(path) > maxPath {
		return nil, fmt.Errorf("registration socket: path %s has %d bytes, a unix socket address holds %d: "+
			"mount kubelet's registration directory at a shorter path", path, len(path), maxPath)
	}
	return &Place{dir: filepath.Clean(dir), driver: driver, path: path, seams: seams{at: func(string) {}}}, nil
}

// Path returns the path at which kubelet expects the socket.
func (p *Place) Path() string { return p.path }

// Driver returns the name of the driver.
func (p *Place) Driver() string { return p.driver }

// LeasePath returns the path of the lock file that goes with the socket.
func (p *Place) LeasePath() string {
	return filepath.Join(p.dir, "."+p.driver+"-reg.lease")
}

// Stat identifies the socket at the path; links are not followed. The error
// wraps ErrAbsent, ErrNotSocket, ErrDirGone, or that of the system call.
func (p *Place) Stat() (ID, error) {
	id, err := identify(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		if goneErr := p.dirGone(); goneErr != nil {
			return ID{}, goneErr
		}
		return ID{}, fmt.Errorf("look at %s: %w", p.path, ErrAbsent)
	}
	if err != nil {
		return ID{}, explain("look at", p.path, err)
	}
	return id, nil
}

// Mine reports whether the inode at the path is the one that s listens on, and
// identifies it. Once s is closed nothing is: the number may be another's. The
// errors are those of Stat, ErrAbsent included.
func (p *Place) Mine(s *Socket) (bool, ID, error) {
	there, err := p.Stat()
	if err != nil {
		return false, ID{}, err
	}
	return s != nil && s.owns(there), there, nil
}

// Remove unlinks the socket at the path if it is exactly id. The error wraps
// ErrChanged, ErrAbsent, ErrNotSocket, ErrDirGone, or that of the system call;
// after each nothing was removed.
func (p *Place) Remove(id ID) error {
	there, err := p.Stat()
	if err != nil {
		return err
	}
	if there != id {
		return fmt.Errorf("remove %s: %w", p.path, ErrChanged)
	}
	p.seams.at("judged")
	if err := unlink(p.path); err != nil {
		return explain("remove", p.path, err)
	}
	return nil
}

// judge returns nil if what stands at the path is exactly over.
func (p *Place) judge(over ID) error {
	there, err := p.Stat()
	if errors.Is(err, ErrAbsent) {
		return fmt.Errorf("publish %s: %w: it was removed", p.path, ErrChanged)
	}
	if err != nil {
		return err
	}
	if there != over {
		return fmt.Errorf("publish %s: %w", p.path, ErrChanged)
	}
	return nil
}

// dirGone returns an error that wraps ErrDirGone if nothing can stand in the
// directory. It judges by path, since a directory may have been removed and made
// anew outside of any mount. A directory that is removed below a mount keeps its
// path and has no links left.
func (p *Place) dirGone() error {
	info, err := os.Stat(p.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p.errDirGone("it does not exist: mount kubelet's plugins_registry there (--plugin-registration-path); if it was removed since, restart the container so that it is mounted afresh")
	case err != nil:
		return explain("look at", p.dir, err)
	case !info.IsDir(): // Windows says "not found" of a path below a file.
		return explain("look at", p.dir, syscall.ENOTDIR)
	case unlinked(info):
		return p.errDirGone("it was removed on the host below this mount, restart the container so that it is mounted afresh")
	}
	return nil
}

func (p *Place) errDirGone(why string) error {
	return fmt.Errorf("look at %s: %w: %s", p.dir, ErrDirGone, why)
}
