package main

import (
	"errors"

	"golang.org/x/sys/unix"
)

func mountTmpfs(target string) error {
	return unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m,mode=0755")
}

func mountBind(source, target string) error {
	return unix.Mount(source, target, "", unix.MS_BIND, "")
}

// unmount removes all mounts at target; none is no error.
func unmount(target string) error {
	for {
		err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
