package endpoint

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
)

// inode returns the inode number that a second name says. Each number has one
// name only.
func (n *Names) inode(name string) (uint64, bool) {
	ino, _ := strconv.ParseUint(strings.TrimPrefix(name, "."+n.base+"."), 36, 64)
	return ino, ino != 0 && n.second(ino) == name
}

// target says where a symlink with this text points. What it says of a second
// name is only the inode number.
func (n *Names) target(text string) Target {
	if text == n.base {
		return Target{Kind: ToSocket}
	}
	if ino, ok := n.inode(text); ok {
		return Target{Kind: ToName, ID: ID{Ino: ino}}
	}
	return Target{Kind: Foreign}
}

const (
	// tempEnd ends a temporary name, which is ".csi.sock.ep.<8 hex digits>.tmp".
	tempEnd    = ".tmp"
	tempDigits = 8
)

// isTemp reports whether path is a temporary name of the symlink.
func (n *Names) isTemp(path string) bool {
	middle, ok := strings.CutPrefix(path, n.temp)
	if !ok {
		return false
	}
	middle, ok = strings.CutSuffix(middle, tempEnd)
	return ok && len(middle) == tempDigits && strings.Trim(middle, "0123456789abcdef") == ""
}

// newTemp returns the path of a new temporary name.
func (n *Names) newTemp() string {
	var random [tempDigits / 2]byte
	_, _ = rand.Read(random[:]) // Never fails (crypto/rand, since Go 1.24).
	return n.temp + hex.EncodeToString(random[:]) + tempEnd
}
