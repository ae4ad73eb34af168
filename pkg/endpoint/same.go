package endpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Usable says whether the symlink beside the driver's socket may be announced,
// and returns the path to announce. kubeletPath is --kubelet-registration-path,
// where the host has the socket; csiAddress is the path of the same socket here;
// mountinfo reads this process's mounts, nil means /proc/self/mountinfo.
//
// It may if both are in one directory. Equal paths prove that. Otherwise the
// names of the socket must be equal, and the directory that the mount shows here
// must end in the same two components as kubelet's: the root of the mount, then
// what lies below its mount point. A mount whose root was removed, or a
// directory with fewer components on its file system, proves nothing.
//
// The error is a sentence for the log. With it the plain path is the one to
// announce.
func Usable(kubeletPath, csiAddress string, mountinfo func() ([]byte, error)) (announce string, err error) {
	if err := supported(); err != nil {
		return "", err
	}
	if mountinfo == nil {
		mountinfo = func() ([]byte, error) { return os.ReadFile("/proc/self/mountinfo") }
	}
	kubeletPath, csiAddress = filepath.Clean(kubeletPath), filepath.Clean(csiAddress)
	if !filepath.IsAbs(kubeletPath) || !filepath.IsAbs(csiAddress) {
		return "", fmt.Errorf("the endpoint keeps no name of its own: %s (--kubelet-registration-path) and %s (--csi-address) "+
			"must both be absolute paths", kubeletPath, csiAddress)
	}
	if kubeletPath != csiAddress {
		if err := sameDir(kubeletPath, csiAddress, mountinfo); err != nil {
			return "", fmt.Errorf("the endpoint keeps no name of its own: %s (--kubelet-registration-path) is not known to be "+
				"%s (--csi-address): %w", kubeletPath, csiAddress, err)
		}
	}
	announce = beside(kubeletPath)
	for _, link := range []string{announce, beside(csiAddress)} {
		if len(link) > maxPath {
			return "", fmt.Errorf("the endpoint keeps no name of its own: %s has %d bytes, a unix socket address holds %d: "+
				"choose a shorter directory", link, len(link), maxPath)
		}
	}
	return announce, nil
}

// beside returns the path of the symlink beside socket.
func beside(socket string) string {
	return filepath.Join(filepath.Dir(socket), linkName(filepath.Base(socket)))
}

func sameDir(kubeletPath, csiAddress string, mountinfo func() ([]byte, error)) error {
	if base := filepath.Base(kubeletPath); base != filepath.Base(csiAddress) {
		return errors.New("the sockets have different names: give both the same")
	}
	info, err := mountinfo()
	if err != nil {
		return fmt.Errorf("the mounts cannot be read: %w", err)
	}
	host := filepath.Dir(kubeletPath)
	want, ok := lastTwo(host)
	if !ok {
		return fmt.Errorf("%s has too few directories above it to tell it from another: use kubelet's plugins/<driver name>", host)
	}
	dir := resolved(filepath.Dir(csiAddress))
	m, err := mountOf(info, dir)
	if err != nil {
		return err
	}
	if root, deleted := strings.CutSuffix(m.root, "//deleted"); deleted {
		return fmt.Errorf("%s, which is mounted at %s, was removed on the host: restart the container so that it is mounted afresh", root, m.point)
	}
	// Its path on its own file system, which may be mounted anywhere on the host.
	shown := path.Join(m.root, strings.TrimPrefix(dir, m.point))
	got, ok := lastTwo(shown)
	switch {
	case !ok:
		return fmt.Errorf("%s is a file system of its own, or right below one (%s), so its path on the host is not known here: "+
			"mount the directory at the same path as on the host", dir, shown)
	case got != want:
		return fmt.Errorf("%s is %s of its file system, not %s: mount the host's %s at %s, or correct --kubelet-registration-path",
			dir, shown, host, host, filepath.Dir(csiAddress))
	}
	return nil
}

// resolved returns dir without symlinks, as mountinfo has it: /var/run is often
// /run. It comes first, since by the name as given another mount could hold dir,
// and prove a lie. What cannot be resolved is not there, or not to be seen: then
// the name as given is what there is.
func resolved(dir string) string {
	if there, err := filepath.EvalSymlinks(dir); err == nil {
		return there
	}
	return dir
}

// lastTwo returns the last two components of an absolute path.
func lastTwo(dir string) (two [2]string, ok bool) {
	parent, last := path.Split(path.Clean(dir))
	two = [2]string{path.Base(parent), last}
	return two, two[0] != "/" && two[0] != "."
}

// mount is what one line of mountinfo says: root, a path on some file system, is
// what stands at point.
type mount struct{ root, point string }

// mountOf returns the mount that holds dir: that with the longest mount point,
// and of several at the same point the last, which lies on top.
func mountOf(info []byte, dir string) (mount, error) {
	mounts, err := parseMounts(info)
	if err != nil {
		return mount{}, err
	}
	var best mount
	for _, m := range mounts {
		if within(dir, m.point) && len(m.point) >= len(best.point) {
			best = m
		}
	}
	if best.point == "" {
		return mount{}, fmt.Errorf("no mount holds %s: mount the driver's directory there", dir)
	}
	return best, nil
}

// within reports whether dir is point or below it.
func within(dir, point string) bool {
	rest, ok := strings.CutPrefix(dir, strings.TrimSuffix(point, "/"))
	return ok && (rest == "" || rest[0] == '/')
}

// parseMounts reads mountinfo (proc_pid_mountinfo(5)): the fourth and fifth
// field of each line. (The root of a namespace's mount is no path.) A line that it
// does not understand could be the one that matters, so it is an error.
func parseMounts(info []byte) ([]mount, error) {
	var mounts []mount
	for line := range bytes.Lines(info) {
		fields := strings.Split(strings.TrimSuffix(string(line), "\n"), " ")
		if len(fields) < 6 || !strings.HasPrefix(fields[4], "/") {
			return nil, fmt.Errorf("the mounts cannot be read: %q is none", line)
		}
		mounts = append(mounts, mount{root: unescape(fields[3]), point: unescape(fields[4])})
	}
	return mounts, nil
}

// unescape takes back what the kernel writes for a space, a tab, a newline and a
// backslash: a backslash and three octal digits.
func unescape(field string) string {
	var out strings.Builder
	for i := 0; i < len(field); i++ {
		if b, ok := octal(field[i:]); ok {
			out.WriteByte(b)
			i += 3
			continue
		}
		out.WriteByte(field[i])
	}
	return out.String()
}

// octal reads a backslash and three octal digits.
func octal(s string) (byte, bool) {
	if len(s) < 4 || s[0] != '\\' {
		return 0, false
	}
	n := 0
	for _, digit := range s[1:4] {
		if digit < '0' || digit > '7' {
			return 0, false
		}
		n = n*8 + int(digit-'0')
	}
	return byte(n), n <= 255
}
