package control

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

var (
	// ErrName says that a name is not one of this driver's control sockets.
	ErrName = errors.New("not the name of a control socket of this driver")
	// ErrStranger says that the process on the other side has another user.
	ErrStranger = errors.New("the process there runs as another user")
	// ErrInUse says that somebody listens under our own name.
	ErrInUse = errors.New("somebody listens there")
	// ErrNotSocket says that something other than a socket has our own name. It was
	// left as it is.
	ErrNotSocket = errors.New("not a socket")
)

const nameEnd = ".ctl"

// Place is where the control sockets of one driver are. It is immutable and safe
// for concurrent use.
type Place struct {
	dir, driver string
	// at is a seam for tests: it is told each step between two system calls.
	at func(step string)
}

// New returns the Place of driver's control sockets in dir, the registration
// directory, without touching it.
func New(dir, driver string) (*Place, error) {
	switch {
	case dir == "":
		return nil, errors.New("control socket: no directory given")
	case driver == "":
		return nil, errors.New("control socket: no driver name given")
	case strings.ContainsAny(driver, "/\\\x00") || strings.Contains(dir, "\x00"):
		return nil, fmt.Errorf("control socket: driver name %q cannot be part of a file name", driver)
	}
	return &Place{dir: filepath.Clean(dir), driver: driver, at: func(string) {}}, nil
}

// name is that of the process pid in the mount namespace with that inode number.
func (p *Place) name(namespace uint64, pid int) string {
	return p.nameStart() + strconv.FormatUint(namespace, 10) + "." + strconv.Itoa(pid) + nameEnd
}

func (p *Place) nameStart() string { return "." + p.driver + "-reg." }

// isName reports whether name is that of a control socket of this driver. Two
// numbers are all that may stand in the middle, so no other driver has it, and it
// leads nowhere else.
func (p *Place) isName(name string) bool {
	middle, ok := strings.CutPrefix(name, p.nameStart())
	if !ok {
		return false
	}
	middle, ok = strings.CutSuffix(middle, nameEnd)
	if !ok {
		return false
	}
	namespace, pid, ok := strings.Cut(middle, ".")
	return ok && isNumber(namespace) && isNumber(pid)
}

// isNumber reports whether s is how a number above zero is written.
func isNumber(s string) bool {
	n, err := strconv.ParseUint(s, 10, 64)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

func (p *Place) path(name string) string { return filepath.Join(p.dir, name) }
