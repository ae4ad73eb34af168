package csidriver

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/windows"
)

func isRefused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }

func isDenied(err error) bool {
	return errors.Is(err, windows.WSAEACCES) || errors.Is(err, windows.ERROR_ACCESS_DENIED)
}

func isBusy(err error) bool { return errors.Is(err, windows.WSAEWOULDBLOCK) }

func isWrongType(err error) bool { return errors.Is(err, windows.WSAEPROTOTYPE) }

// looksLikeSocket: a socket is a reparse point here, which Go reports as a
// socket, as irregular or as a plain file, depending on its release; only a
// directory is certain to be none.
func looksLikeSocket(fi fs.FileInfo) bool { return !fi.IsDir() }

// dirGone: a directory that is mounted cannot be removed here.
func dirGone(string) bool { return false }
