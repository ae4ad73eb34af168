package endpoint

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

var (
	// ErrDirGone says that the driver's directory is not there any more, or was
	// removed below a mount, so that nothing can ever be made in it again. Only a
	// restart of the container mounts it afresh.
	ErrDirGone = errors.New("the driver's directory is gone")
	// ErrChanged says that what stands at a name is not what was judged: look
	// again. Nothing was changed.
	ErrChanged = errors.New("it is another one by now")
	// ErrForeign says that something of somebody else's stands at a name of ours.
	// It was left as it is.
	ErrForeign = errors.New("something is in the way that is not ours")
	// ErrNoLinks says that the driver's socket can have no second name. It wraps
	// the errno and says what to do.
	ErrNoLinks = errors.New("the driver's socket can have no second name")
)

// maxPath is what fits into a unix socket address, without the final zero byte
// (unix(7)).
const maxPath = 107

// linkEnd ends the name of the symlink, ".csi.sock.ep".
const linkEnd = "ep"

// ID tells one socket inode from another. It is comparable; the zero ID means
// that there is none, or in Path, Dial and Probe csi.sock, whatever it is.
type ID struct {
	// Dev and Ino are the device and the inode number. File systems give the
	// number of a removed file to the next one at once, but a second name keeps it
	// in use.
	Dev, Ino uint64
	// Made is the time of the last write (mtime) in nanoseconds since 1970. bind
	// sets that of a socket, and neither link nor chmod nor rename moves it, so it
	// orders by age.
	Made int64
}

// String is for logs.
func (a ID) String() string { return fmt.Sprintf("%d:%d@%d", a.Dev, a.Ino, a.Made) }

// TargetKind says what stands at the name of the symlink.
type TargetKind uint8

const (
	// NoLink means that nothing is there.
	NoLink TargetKind = iota
	// ToSocket is a symlink to csi.sock.
	ToSocket
	// ToName is a symlink to a second name, which is there or not.
	ToName
	// Foreign is something else: not a symlink, or one that points elsewhere. It
	// is never touched.
	Foreign
)

// String is for logs.
func (k TargetKind) String() string {
	switch k {
	case NoLink:
		return "no link"
	case ToSocket:
		return "to the socket"
	case ToName:
		return "to a second name"
	case Foreign:
		return "foreign"
	}
	return "unknown"
}

// Target is what the symlink points to.
type Target struct {
	Kind TargetKind
	// ID is zero unless Kind is ToName. Its Ino is from the name; Dev and Made
	// are zero if no socket with this inode number stands there.
	ID ID
}

// Listing is what stands in the driver's directory. It is no snapshot: each part
// was looked at by itself.
type Listing struct {
	// Socket is csi.sock; zero if it is absent or not a socket.
	Socket ID
	// SocketOdd says what csi.sock is if it is there and not a socket.
	SocketOdd error
	// Link is the symlink.
	Link Target
	// Others are the inodes with a second name, newest first, that of Socket
	// included if it has one.
	Others []ID
	// Named says that Socket has its second name.
	Named bool
}

// Life is what an attempt to connect says about a socket. None proves that
// somebody works behind it: a frozen process listens too.
type Life uint8

const (
	// Unheard means that nobody has asked.
	Unheard Life = iota
	// Listens means that a connection was made.
	Listens
	// Refuses means that nobody listens: whoever bound the socket has ended, or
	// does not listen yet. A csi.sock that is no socket refuses too: Read first.
	Refuses
	// Gone means that nothing, or another inode, stands at the name.
	Gone
	// Busy means that somebody listens who does not accept: the backlog is full.
	Busy
	// Denied means that we may not connect.
	Denied
	// Unclear is an error that says nothing about who listens.
	Unclear
)

// String is for logs.
func (l Life) String() string {
	switch l {
	case Unheard:
		return "unheard"
	case Listens:
		return "listens"
	case Refuses:
		return "refuses"
	case Gone:
		return "gone"
	case Busy:
		return "busy"
	case Denied:
		return "denied"
	case Unclear:
	}
	return "unclear"
}

// Names are the names of one driver's socket in its directory, as this process
// sees it: csi.sock, which belongs to the driver and is never touched; the
// announced endpoint .csi.sock.ep, a relative symlink; and for each inode a
// second name .csi.sock.<inode number>, a hard link. (With another
// --csi-address, csi.sock stands for the last part of that.)
//
// Whatever else stands at one of these names is foreign: it is never removed,
// replaced or followed. Each call judges by path, since the directory may be
// removed and made anew. Look and act are two adjacent system calls; in between
// somebody else can still act, and nothing closes that window.
//
// Names is immutable and safe for concurrent use.
type Names struct {
	dir, base          string
	socket, link, temp string // Of temp only what each temporary name begins with.
	seams              seams
}

// seams are told of each step between two system calls, in tests.
type seams struct{ at func(step string) }

// NewNames returns the names that go with csiAddress, the path of the driver's
// socket, without touching anything.
func NewNames(csiAddress string) (*Names, error) {
	base := filepath.Base(csiAddress)
	switch {
	case strings.Contains(csiAddress, "\x00"):
		return nil, fmt.Errorf("names of the driver's socket: %q contains a NUL byte", csiAddress)
	case csiAddress == "", base == ".", base == "..", base == string(filepath.Separator):
		return nil, fmt.Errorf("names of the driver's socket: %q is no path of a socket", csiAddress)
	}
	dir := filepath.Dir(csiAddress)
	link := filepath.Join(dir, linkName(base))
	return &Names{
		dir: dir, base: base, socket: filepath.Join(dir, base), link: link, temp: link + ".",
		seams: seams{at: func(string) {}},
	}, nil
}

// linkName returns the name of the symlink beside a socket called base.
func linkName(base string) string { return "." + base + "." + linkEnd }

// LinkPath returns the path of the symlink.
func (n *Names) LinkPath() string { return n.link }

// Base returns the name of the driver's socket, without the directory.
func (n *Names) Base() string { return n.base }

// LinkName returns the name of the symlink, without the directory.
func (n *Names) LinkName() string { return linkName(n.base) }

// Path returns the path of the second name that id has or can have; with the
// zero ID that of csi.sock.
func (n *Names) Path(id ID) string {
	if id == (ID{}) {
		return n.socket
	}
	return filepath.Join(n.dir, n.second(id.Ino))
}

// second returns the second name of the inode with this number. Inode 529 is
// "ep" in base 36, which is the symlink's: it has a zero in front.
func (n *Names) second(ino uint64) string {
	end := strconv.FormatUint(ino, 36)
	if end == linkEnd {
		end = "0" + end
	}
	return "." + n.base + "." + end
}
