package endpoint

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// container is what /proc/self/mountinfo says in a container, with these mounts
// below its root.
func container(mounts ...mount) func() ([]byte, error) {
	lines := []string{
		"1201 1093 0:188 / / rw,relatime master:371 - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w",
		"1202 1201 0:190 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw",
		"1207 1201 8:1 /var/lib/kubelet/plugins_registry /registration rw,relatime master:1 - ext4 /dev/sda1 rw",
		"1208 1201 0:4 net:[4026532281] /run/netns/x rw shared:9 - nsfs nsfs rw",
		"1209 1201 0:55 / /empty rw,relatime - tmpfs  rw",
	}
	for i, m := range mounts {
		lines = append(lines, fmt.Sprintf("%d 1201 8:1 %s %s rw,relatime - ext4 /dev/sda1 rw", 1300+i, escape(m.root), escape(m.point)))
	}
	return func() ([]byte, error) { return []byte(strings.Join(lines, "\n") + "\n"), nil }
}

// escape does as the kernel does.
func escape(s string) string {
	return strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(s)
}

const plain = "/var/lib/kubelet/plugins/x.csi/csi.sock"

func wantUsable(t *testing.T, kubeletPath, csiAddress string, mountinfo func() ([]byte, error), want string) {
	t.Helper()
	got, err := Usable(kubeletPath, csiAddress, mountinfo)
	if err != nil || got != want {
		t.Errorf("%s and %s: got %q, %v, want %s", kubeletPath, csiAddress, got, err, want)
	}
}

// wantRefused wants no path and an error that says so, why, and what to do.
func wantRefused(t *testing.T, kubeletPath, csiAddress string, mountinfo func() ([]byte, error), words ...string) {
	t.Helper()
	got, err := Usable(kubeletPath, csiAddress, mountinfo)
	if got != "" {
		t.Errorf("%s and %s: got %s", kubeletPath, csiAddress, got)
	}
	wantWords(t, err, append(words, "the endpoint keeps no name of its own: ")...)
}

// layouts are the ways a node's disks can be laid out. Each says what stands as
// the root of a mount of host, a path on the node, and where the file system of
// dir, a path below it, begins.
var layouts = map[string]func(host, dir string) (root, fileSystem string){
	"one file system": func(host, _ string) (string, string) { return host, "/" },
	"/var/lib/kubelet": func(host, _ string) (string, string) {
		return "/" + strings.TrimPrefix(strings.TrimPrefix(host, "/var/lib/kubelet"), "/"), "/var/lib/kubelet"
	},
	"the directory of the drivers": func(host, dir string) (string, string) {
		return "/" + path.Base(host), path.Dir(dir)
	},
	"the driver's directory": func(_, dir string) (string, string) { return "/", dir },
	"/var/lib/kubelet is a symlink": func(host, _ string) (string, string) {
		return strings.Replace(host, "/var/lib/kubelet", "/mnt/big disk/k8s", 1), "/mnt"
	},
	"btrfs": func(host, _ string) (string, string) { return "/@root/.snapshots/1/snapshot" + host, "/" },
}

// Every recorded manifest passes on a node whose layout lets it be known: the
// paths are equal, or kubelet's directory is at least two below the root of its
// file system.
func TestRecordedManifests(t *testing.T) {
	contents, err := os.ReadFile(filepath.FromSlash("testdata/manifests.tsv"))
	check(t, err)
	records, passed := 0, map[string]int{}
	for line := range strings.Lines(string(contents)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(strings.TrimSpace(line), "\t")
		count, err := strconv.Atoi(fields[0])
		check(t, err)
		csiAddress, kubeletPath, point, host := fields[1], fields[2], fields[3], fields[4]
		records += count
		announce := path.Join(path.Dir(kubeletPath), "."+path.Base(kubeletPath)+".ep")
		for name, layout := range layouts {
			root, fileSystem := layout(host, path.Dir(kubeletPath))
			below := strings.Count(strings.TrimPrefix(path.Dir(kubeletPath), strings.TrimSuffix(fileSystem, "/")), "/")
			if fileSystem == "/mnt" {
				below = 9
			}
			info := container(mount{root, point})
			if kubeletPath == csiAddress || below >= 2 {
				wantUsable(t, kubeletPath, csiAddress, info, announce)
				passed[name] += count
			} else {
				got, err := Usable(kubeletPath, csiAddress, info)
				wantWords(t, err, "file system of its own", "mount the directory at the same path")
				if got != "" {
					t.Errorf("%s: got %s", name, got)
				}
			}
		}
		if kubeletPath == csiAddress {
			continue
		}
		for name, m := range map[string]mount{
			"an emptyDir":    {"/var/lib/kubelet/pods/1f2/volumes/kubernetes.io~empty-dir/" + path.Base(host), point},
			"another driver": {path.Join(path.Dir(host), "other.csi"), point},
			"removed":        {host + "//deleted", point},
		} {
			if got, err := Usable(kubeletPath, csiAddress, container(m)); err == nil {
				t.Errorf("%s %s: got %s", kubeletPath, name, got)
			}
		}
	}
	if records != 127 {
		t.Errorf("%d records, want the 127 of the corpus", records)
	}
	for _, name := range []string{"one file system", "/var/lib/kubelet", "/var/lib/kubelet is a symlink", "btrfs"} {
		if passed[name] != records {
			t.Errorf("%s: %d of %d pass", name, passed[name], records)
		}
	}
	t.Logf("of %d manifests pass: %v", records, passed)
}

// Proves which mount is chosen, and each reason to refuse.
func TestWhichMount(t *testing.T) {
	const ours, link = "/var/lib/kubelet/plugins/x.csi", "/var/lib/kubelet/plugins/x.csi/.csi.sock.ep"
	for _, c := range []struct {
		why        string
		csiAddress string
		mounts     []mount
		says       string // Empty: usable.
	}{
		{"the plain case", "/csi/csi.sock", []mount{{ours, "/csi"}}, ""},
		{"an address that is not clean", "/csi//./csi.sock", []mount{{ours, "/csi"}}, ""},
		{"the last of equals is on top", "/csi/csi.sock", []mount{{"/other", "/csi"}, {ours, "/csi"}}, ""},
		{"the last of equals is on top, no", "/csi/csi.sock", []mount{{ours, "/csi"}, {"/a/other", "/csi"}}, "/csi is /a/other of its file system"},
		{"the longest", "/csi/x.csi/csi.sock", []mount{{ours, "/csi/x.csi"}, {"/other", "/csi"}}, ""},
		{"the longest, no", "/csi/x.csi/csi.sock", []mount{{"/a/other", "/csi/x.csi"}, {"/plugins", "/csi"}}, "/a/other"},
		{"below the mount point", "/csi/x.csi/csi.sock", []mount{{"/var/lib/kubelet/plugins", "/csi"}}, ""},
		{"two below", "/csi/plugins/x.csi/csi.sock", []mount{{"/", "/csi"}}, ""},
		{"two below, no", "/csi/plugins/y.csi/csi.sock", []mount{{"/", "/csi"}}, "/csi/plugins/y.csi is /plugins/y.csi"},
		{"whole components", "/csi2/csi.sock", []mount{{ours, "/csi"}}, "right below one (/csi2)"},
		{"the last component only", "/csi/csi.sock", []mount{{"/var/lib/kubelet/pods/x.csi", "/csi"}}, "pods/x.csi"},
		{"the root of a file system", "/csi/csi.sock", []mount{{"/", "/csi"}}, "a file system of its own"},
		{"one component", "/csi/csi.sock", []mount{{"/x.csi", "/csi"}}, "right below one (/x.csi)"},
		{"removed", "/csi/csi.sock", []mount{{ours + "//deleted", "/csi"}}, "was removed on the host: restart the container"},
		{"removed above", "/csi/x.csi/csi.sock", []mount{{"/var/lib/kubelet/plugins//deleted", "/csi"}}, "was removed on the host"},
		{"a namespace", "/csi/csi.sock", []mount{{"net:[4026532281]", "/csi"}}, "a file system of its own"},
		{"no mount of its own", "/csi/csi.sock", nil, "right below one (/csi)"},
		{"another base name", "/csi/csi_sock", []mount{{ours, "/csi"}}, "different names"},
		{"not absolute", "csi/csi.sock", []mount{{ours, "/csi"}}, "must both be absolute"},
	} {
		t.Run(c.why, func(t *testing.T) {
			if c.says == "" {
				wantUsable(t, plain, c.csiAddress, container(c.mounts...), link)
			} else {
				wantRefused(t, plain, c.csiAddress, container(c.mounts...), plain, c.says)
			}
		})
	}
	wantRefused(t, "/x.csi/csi.sock", "/csi/csi.sock", container(mount{"/x.csi", "/csi"}), "too few directories above")
	wantRefused(t, "/csi.sock", "/csi/csi.sock", container(mount{"/x.csi", "/csi"}), "too few directories above")
	wantRefused(t, "plugins/x.csi/csi.sock", "/csi/csi.sock", container(mount{ours, "/csi"}), "must both be absolute")
}

// Names that the kernel escapes.
func TestEscapedMounts(t *testing.T) {
	for _, name := range []string{"a b", "a\tb", "a\nb", `a\b`, `a\040b`, "é", "#"} {
		kubeletPath := "/var/lib/kubelet/plugins/" + name + "/csi.sock"
		info := container(mount{"/k/plugins/" + name, "/csi/" + name})
		wantUsable(t, kubeletPath, "/csi/"+name+"/csi.sock", info, "/var/lib/kubelet/plugins/"+name+"/.csi.sock.ep")
		wantRefused(t, kubeletPath+"/csi.sock", "/csi/"+name+"/csi.sock", info)
	}
}

func TestUnescape(t *testing.T) {
	for field, want := range map[string]string{
		`\040`: " ", `\134040`: `\040`, `a\011`: "a\t", `\377`: "\xff", `\08`: `\08`, `\080`: `\080`, `\400`: `\400`, `\04`: `\04`, `\`: `\`, "": "",
	} {
		if got := unescape(field); got != want {
			t.Errorf("%s: got %q, want %q", field, got, want)
		}
	}
}

func TestMountsThatCannotBeRead(t *testing.T) {
	cause := errors.New("no such process")
	broken := func(text string) func() ([]byte, error) { return func() ([]byte, error) { return []byte(text), nil } }
	_, err := Usable(plain, "/csi/csi.sock", func() ([]byte, error) { return nil, cause })
	wantErr(t, err, cause)
	wantRefused(t, plain, "/csi/csi.sock", broken(""), "no mount holds /csi")
	good, _ := container(mount{"/var/lib/kubelet/plugins/x.csi", "/csi"})()
	for _, line := range []string{"\n", "1 2 3\n", "1 2 8:1 / csi rw - ext4 d rw\n", "1 2 8:1 / /csi"} {
		wantRefused(t, plain, "/csi/csi.sock", broken(string(good)+line), "the mounts cannot be read")
	}
	// Equal paths need none.
	wantUsable(t, "/var/lib//kubelet/./plugins/x.csi/csi.sock", plain, broken("x"), "/var/lib/kubelet/plugins/x.csi/.csi.sock.ep")
	wantUsable(t, plain, plain, broken("x"), "/var/lib/kubelet/plugins/x.csi/.csi.sock.ep")
}

// Both paths of the symlink must fit (L7). It has four bytes more than the
// socket's.
func TestLengths(t *testing.T) {
	long := func(start string, length int) string { // Of the symlink.
		return start + strings.Repeat("d", length-len(start)-len("/.csi.sock.ep")) + "/csi.sock"
	}
	for length, fits := range map[int]bool{106: true, 107: true, 108: false, 111: false} {
		host, here := long("/var/lib/kubelet/plugins/", length), long("/", length)
		for _, c := range []struct {
			kubeletPath, csiAddress string
			root                    string
		}{
			{host, host, "/"},
			{host, "/csi/csi.sock", path.Dir(host)},
			{plain, here, path.Dir(plain)},
		} {
			info := container(mount{c.root, path.Dir(c.csiAddress)})
			if fits {
				wantUsable(t, c.kubeletPath, c.csiAddress, info, path.Dir(c.kubeletPath)+"/.csi.sock.ep")
			} else {
				wantRefused(t, c.kubeletPath, c.csiAddress, info, fmt.Sprintf("%d bytes", length), "holds 107", "shorter directory")
			}
		}
	}
}

// Proves that symlinks are resolved, and first: by the name as given another
// mount would prove a lie.
func TestSymlinkOnTheWay(t *testing.T) {
	base, err := filepath.EvalSymlinks(shortDir(t))
	check(t, err)
	check(t, os.Mkdir(base+"/run", 0o700))
	check(t, os.MkdirAll(base+"/a/plugins", 0o700))
	check(t, os.Symlink("run", base+"/var"))
	check(t, os.Symlink("../../run", base+"/a/plugins/x.csi"))
	info := container(mount{"/var/lib/kubelet/plugins/x.csi", base + "/run"})
	const link = "/var/lib/kubelet/plugins/x.csi/.csi.sock.ep"
	wantUsable(t, plain, base+"/run/csi.sock", info, link)
	wantUsable(t, plain, base+"/var/csi.sock", info, link)
	wantUsable(t, plain, base+"/a/plugins/x.csi/csi.sock", info, link)
	wantRefused(t, plain, base+"/a/plugins/x.csi/csi.sock", container(mount{"/elsewhere/run", base + "/run"}), "/elsewhere/run")
}

// With real mounts, read from /proc.
func TestRealMounts(t *testing.T) {
	for name, host := range map[string]func(*testing.T) string{
		"what is there": shortDir,
		"tmpfs": func(t *testing.T) string {
			dir := shortDir(t)
			mountAt(t, "none", dir, "tmpfs", 0, "")
			return dir
		},
		"overlayfs": func(t *testing.T) string { return overlay(t) },
	} {
		t.Run(name, func(t *testing.T) {
			host, csi := host(t), filepath.Join(shortDir(t), "c s i")
			driver := filepath.Join(host, "plugins", `x y\z`)
			check(t, os.MkdirAll(driver, 0o700))
			check(t, os.Mkdir(csi, 0o700))
			mountAt(t, driver, csi, "", unix.MS_BIND, "")
			const kubelet = `/var/lib/kubelet/plugins/x y\z/`
			wantUsable(t, kubelet+"csi.sock", csi+"/csi.sock", nil, kubelet+".csi.sock.ep")
			wantRefused(t, plain, csi+"/csi.sock", nil, `plugins/x y\z of its file system`)
			mountAt(t, host, csi, "", unix.MS_BIND, "") // On top.
			wantRefused(t, kubelet+"csi.sock", csi+"/csi.sock", nil, "--kubelet-registration-path")
			wantUsable(t, kubelet+"csi.sock", filepath.Join(csi, "plugins", `x y\z`, "csi.sock"), nil, kubelet+".csi.sock.ep")
			check(t, unix.Unmount(csi, 0))
			check(t, os.Remove(driver))
			wantRefused(t, kubelet+"csi.sock", csi+"/csi.sock", nil, "was removed on the host")
		})
	}
}

func FuzzMountinfo(f *testing.F) {
	good, _ := container(mount{"/k/plugins/a b", "/csi"}, mount{"/k/plugins//deleted", "/csi"})()
	f.Add(good, "/csi", "/k/plugins")
	f.Add([]byte(`1 2 8:1 /\040\0 /\777 rw`), `/\777`, `/ \`)
	f.Add([]byte("1 2 8:1 net:[1] / rw"), "/", "")
	f.Fuzz(func(t *testing.T, info []byte, dir, root string) {
		m, err := mountOf(info, dir)
		if err == nil && (m.point == "" || !within(dir, m.point)) {
			t.Errorf("%q holds %q", m.point, dir)
		}
		if err == nil && !strings.Contains(unescape(string(info)), m.root) {
			t.Errorf("%q is not there", m.root)
		}
		_, _ = Usable("/k/plugins/a b/csi.sock", "/csi/csi.sock", func() ([]byte, error) { return info, nil })

		// One more line, as the kernel writes it, is the one on top.
		if len(info) > 0 && !strings.HasSuffix(string(info), "\n") {
			return
		}
		if _, err := parseMounts(info); err != nil || !strings.HasPrefix(dir, "/") {
			return
		}
		line := "1 2 8:1 " + escape(root) + " " + escape(dir) + " rw\n"
		m, err = mountOf(append(info, line...), dir)
		if err != nil || m != (mount{root, dir}) {
			t.Errorf("got %q, %v, want %q", m, err, mount{root, dir})
		}
	})
}
