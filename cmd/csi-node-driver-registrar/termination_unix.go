//go:build !windows

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// openTerminationLog opens what is at name, never through a symbolic link,
// never making it, and without waiting for the reader of a FIFO.
func openTerminationLog(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
}
