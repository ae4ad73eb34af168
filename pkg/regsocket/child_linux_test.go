package regsocket

import "golang.org/x/sys/unix"

func childChroot(dir string) error {
	if err := unix.Chroot(dir); err != nil {
		return err
	}
	return unix.Chdir("/")
}
