package regsocket

import (
	"fmt"
	"io/fs"
	"syscall"
)

const (
	errRefused = syscall.ECONNREFUSED
	errBusy    = syscall.EAGAIN
	errDenied  = syscall.EACCES
)

func idOf(_ string, info fs.FileInfo) (ID, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ID{}, fmt.Errorf("look at %s: no inode number", info.Name())
	}
	return ID{Dev: uint64(stat.Dev), Ino: stat.Ino, Changed: stat.Ctim.Nano()}, nil
}

// owner names the owner of a file, for the words of an error.
func owner(info fs.FileInfo) string {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf(", owner %d:%d", stat.Uid, stat.Gid)
	}
	return ""
}

// unlinked reports whether a directory that was found by its path was removed
// nevertheless, which a mount point can be.
func unlinked(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink == 0
}
