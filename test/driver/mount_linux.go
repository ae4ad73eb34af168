package main

import (
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
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

// usage of the file system at path, in bytes.
func usage(path string) (*csi.VolumeUsage, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return nil, err
	}
	size := int64(s.Bsize) //nolint:unconvert // it is 32 bits wide on arm
	return &csi.VolumeUsage{
		Unit: csi.VolumeUsage_BYTES, Total: int64(s.Blocks) * size,
		Available: int64(s.Bavail) * size, Used: int64(s.Blocks-s.Bfree) * size,
	}, nil
}
