package main

import (
	"io/fs"
	"os"
)

// openTerminationLog opens what is at name, unless it is a symbolic link, and
// never makes it. Windows has no open that refuses a link in one step; the
// link would have to come between the two.
func openTerminationLog(name string) (*os.File, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return os.OpenFile(name, os.O_WRONLY, 0)
}
