//go:build unix

package csidriver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// isDenied: EPERM is what some security modules say.
func isDenied(err error) bool {
	return errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)
}

// isBusy: connect(2) on a unix socket whose queue is full.
func isBusy(err error) bool { return errors.Is(err, syscall.EAGAIN) }

// isWrongType: a datagram or seqpacket socket.
func isWrongType(err error) bool { return errors.Is(err, syscall.EPROTOTYPE) }

// looksLikeSocket tells a socket from what else connect(2) refuses in the same
// words, a regular file for one.
func looksLikeSocket(fi fs.FileInfo) bool { return fi.Mode()&fs.ModeSocket != 0 }

// dirGone: a directory that was removed has no link left, and stays that way for
// whoever has it mounted. One that is missing may yet be made, unless it would be in
// a removed one. (Overlayfs may keep the number of links above 0; then the driver is
// merely waited for.)
func dirGone(dir string) bool {
	fi, err := os.Stat(dir)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		fi, err = os.Stat(dir)
	}
	if err != nil {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 0
}
