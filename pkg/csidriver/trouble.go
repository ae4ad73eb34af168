package csidriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Reason is a kind of trouble: what to compare in order to say a thing once.
type Reason uint8

// The reasons.
const (
	Other         Reason = iota // none of the others; the text says all that is known
	NoFile                      // nothing at the path
	NobodyListens               // a socket without a listener
	Denied                      // no permission
	NotASocket                  // something else at the path
	NoAnswer                    // accepted, or queued, but no answer in time
	HungUp                      // accepted, then closed without an answer
	Unimplemented               // answers, but is no CSI driver
	BadName                     // answers with a name that no CSI driver may have
	DirGone                     // the directory was removed under its mount: nothing can appear in it again
)

// String returns the reason in a word or two, for logs and metrics.
func (r Reason) String() string {
	switch r {
	case Other:
		return "other"
	case NoFile:
		return "no file"
	case NobodyListens:
		return "nobody listens"
	case Denied:
		return "denied"
	case NotASocket:
		return "not a socket"
	case NoAnswer:
		return "no answer"
	case HungUp:
		return "hung up"
	case Unimplemented:
		return "unimplemented"
	case BadName:
		return "bad name"
	case DirGone:
		return "directory gone"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Trouble is why the driver's name is not known, in words for an operator,
// the next step included.
type Trouble struct {
	Reason Reason
	words  string
	cause  error
}

// Error returns the words.
func (t *Trouble) Error() string { return t.words }

// Unwrap returns what the operating system or grpc said; nil for BadName.
func (t *Trouble) Unwrap() error { return t.cause }

func (d *Driver) trouble(r Reason, cause error, format string, args ...any) *Trouble {
	return &Trouble{Reason: r, words: fmt.Sprintf(format, args...), cause: cause}
}

// dialTrouble explains why no connection could be made.
func (d *Driver) dialTrouble(err error) *Trouble {
	a := d.cfg.Address
	fi, statErr := os.Stat(a)
	switch {
	case errors.Is(err, fs.ErrNotExist) && dirGone(filepath.Dir(a)):
		return d.trouble(DirGone, err, "the directory %s was removed on the host, and this container still has the removed one mounted: the driver's socket cannot appear in it; only a restart of this container mounts it afresh", filepath.Dir(a))
	case errors.Is(err, fs.ErrNotExist) || errors.Is(statErr, fs.ErrNotExist):
		return d.trouble(NoFile, err, "no socket at %s yet (no such file): is the driver container running, and does it use the same volume?", a)
	case isDenied(err):
		return d.trouble(Denied, err, "connect to %s: permission denied: run this container as the user that owns the socket (root, usually), and if SELinux is enforcing, with a label that may use it (securityContext.privileged or seLinuxOptions)", a)
	case statErr == nil && !looksLikeSocket(fi):
		return d.trouble(NotASocket, err, "%s is %s, not a socket: does --csi-address name the driver's socket?", a, kindOf(fi.Mode()))
	case isWrongType(err):
		return d.trouble(NotASocket, err, "%s is not a stream socket: does --csi-address name the driver's gRPC socket?", a)
	case isRefused(err):
		return d.trouble(NobodyListens, err, "socket at %s, but nobody listens (connection refused): the driver is starting or has died, see its container's log", a)
	case isBusy(err):
		return d.trouble(NoAnswer, err, "the queue of connections at %s is full: the driver accepts none, it may hang: see its container's log", a)
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		return d.trouble(NoAnswer, err, "no connection to %s in %v: the driver may hang: see its container's log", a, d.cfg.Timeout)
	}
	return d.trouble(Other, err, "connect to the driver: %v: check that --csi-address names its socket", err)
}

// callTrouble explains why a connection gave no name.
func (d *Driver) callTrouble(err error) *Trouble {
	a := d.cfg.Address
	st, ok := status.FromError(err)
	if !ok {
		// rpc.GetDriverName's only error of its own: the name is empty.
		return d.trouble(BadName, err, "the driver at %s gave an empty name: it must answer GetPluginInfo with its CSI driver name", a)
	}
	switch st.Code() {
	case codes.DeadlineExceeded:
		return d.trouble(NoAnswer, err, "the driver at %s accepts connections, but gave no answer to GetPluginInfo in %v: it may hang, or be busy starting: see its container's log (--timeout gives it longer)", a, d.cfg.Timeout)
	case codes.Unavailable, codes.Canceled:
		return d.trouble(HungUp, err, "the driver at %s closed the connection without an answer to GetPluginInfo (%s): it may be starting or stopping: see its container's log", a, st.Message())
	case codes.Unimplemented:
		return d.trouble(Unimplemented, err, "the server at %s has no CSI identity service (GetPluginInfo is unimplemented): does --csi-address name the CSI driver's socket, and not another's?", a)
	}
	return d.trouble(Other, err, "the driver at %s answered GetPluginInfo with an error: %s: %s: see its container's log", a, st.Code(), st.Message())
}

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m.IsRegular():
		return "a regular file"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}
