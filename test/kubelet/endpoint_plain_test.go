package kubelet_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// announcingPlain is what a registrar says when it does not announce the symlink.
const announcingPlain = "Announcing the driver's own socket"

// awaitPlain wants the driver registered at csi.sock, and the reason said once.
func awaitPlain(n *harness.Node, ours *harness.Proc, because string) {
	n.Await("kubelet to be told "+n.Socket, patient, func() bool { return n.Announced() == n.Socket && n.Registered() })
	n.AwaitQuiet(onePair, patient)
	n.AwaitRegistered(soon)
	if got := ours.Said(announcingPlain); got != 1 {
		n.Errorf("it said %q %d times, want once", announcingPlain, got)
	}
	if !slices.ContainsFunc(ours.Lines(), func(s string) bool { return strings.Contains(s, announcingPlain) && strings.Contains(s, because) }) {
		n.Errorf("it did not say %q", because)
	}
}

// TestKubeletsPathLeadsElsewhere: all that can be seen from inside speaks for one
// directory, and it is another one on the host. Kubelet cannot dial the symlink, and is
// told csi.sock then.
func TestKubeletsPathLeadsElsewhere(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		skip(t, "needs root for a mount namespace")
	}
	n := harness.New(t, bin)
	n.StartKubelet()
	elsewhere := filepath.Join(n.Root, "other", "plugins", n.Driver) // the same last two names
	if err := os.MkdirAll(elsewhere, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(elsewhere, "csi.sock"), n.Socket); err != nil {
		t.Fatal(err)
	}
	driver := n.StartDriver("--endpoint=" + filepath.Join(elsewhere, "csi.sock"))
	container, inside := mounted(t, n, elsewhere)
	ours := n.StartUnder(container, harness.Ours, "--csi-address="+filepath.Join(inside, "csi.sock"))
	if c := n.AwaitCall("register", true, ours.Started, soon); c.Endpoint != n.Endpoint || !strings.Contains(strings.ToLower(c.Error), "dial") {
		n.Fatalf("kubelet refused %s with %q, want %s and a dial error", c.Endpoint, c.Error, n.Endpoint)
	}
	awaitPlain(n, ours, "kubelet's path leads elsewhere")
	n.AwaitReached(n.Announced(), soon, driver)
	ours.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestRefusedForAnotherReason says nothing about the symlink.
func TestRefusedForAnotherReason(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	n.StartKubelet()
	n.StartDriver("--node-info-failures=2")
	ours := n.Start(harness.Ours)
	n.AwaitCall("register", true, ours.Started, soon)
	n.AwaitRegistered(patient)
	if got := n.Announced(); got != n.Endpoint || ours.Said(announcingPlain) > 0 {
		n.Errorf("kubelet was told %s, want %s", got, n.Endpoint)
	}
	ours.Terminate()
	n.AssertLeft()
}

// TestRefusedWhileTheDriverRestarted: kubelet could not dial because the driver was
// away; it is back when kubelet's words arrive. That says nothing about the path.
func TestRefusedWhileTheDriverRestarted(t *testing.T) {
	t.Parallel()
	n := harness.New(t, bin)
	kubelet := n.StartKubelet()
	driver := n.StartDriver()
	ours := n.Start(harness.Ours)
	n.AwaitAcceptor(soon, ours)
	kubelet.Freeze()
	driver.Terminate()
	kubelet.Thaw()
	n.AwaitCall("validate", false, ours.Started, soon)
	ours.Freeze()
	n.AwaitCall("register", true, ours.Started, soon)
	n.StartDriver("--node-id=back")
	ours.Thaw()
	n.AwaitNodeID("back", patient)
	n.AwaitRegistered(patient)
	n.AwaitQuiet(onePair, soon)
	if got := n.Announced(); got != n.Endpoint || ours.Said(announcingPlain) > 0 {
		n.Errorf("kubelet was told %s, want %s", got, n.Endpoint)
	}
	ours.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestSymlinksNameTaken: what stands at the symlink's name and is not ours is not
// touched, whether it was there before or comes later; kubelet is told csi.sock.
func TestSymlinksNameTaken(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path string) error{
		"a file":            func(path string) error { return os.WriteFile(path, []byte("precious"), 0o640) },
		"a directory":       func(path string) error { return os.MkdirAll(path+"/precious", 0o750) },
		"a foreign symlink": func(path string) error { return os.Symlink("/dev/null", path) },
	} {
		for _, late := range []bool{false, true} {
			when := "before"
			if late {
				when = "later"
			}
			t.Run(name+", "+when, func(t *testing.T) {
				t.Parallel()
				n := harness.New(t, bin)
				n.StartKubelet()
				driver := n.StartDriver()
				var ours *harness.Proc
				if late {
					ours = n.Start(harness.Ours)
					n.AwaitRegistered(soon)
					n.AwaitQuiet(onePair, soon)
					putInstead(t, n.Endpoint, put)
				} else {
					putInstead(t, n.Endpoint, put)
					ours = n.Start(harness.Ours)
				}
				before, err := os.Lstat(n.Endpoint)
				if err != nil {
					t.Fatal(err)
				}
				awaitPlain(n, ours, filepath.Base(n.Endpoint))
				n.AwaitReached(n.Announced(), soon, driver)
				ours.Terminate()
				n.AwaitGone(soon)
				n.AssertLeft()
				after, err := os.Lstat(n.Endpoint)
				if err != nil || !os.SameFile(before, after) || before.Mode() != after.Mode() || !before.ModTime().Equal(after.ModTime()) {
					n.Errorf("what stands there was touched: %v, %v; was %v", after, err, before)
				}
			})
		}
	}
}

// putInstead puts something where the symlink is, if it is.
func putInstead(t *testing.T, path string, put func(string) error) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for {
		_ = os.Remove(path)
		err := put(path)
		if err == nil {
			return
		}
		if time.Now().After(deadline) { // somebody is faster, each time
			t.Fatal(err)
		}
	}
}

// TestReadOnlyDriverDirectory: nothing can be made there: kubelet is told csi.sock.
func TestReadOnlyDriverDirectory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		skip(t, "needs root for a mount namespace")
	}
	n := harness.New(t, bin)
	n.StartKubelet()
	driver := n.StartDriver()
	readOnly := []string{"unshare", "--mount", "--propagation=private", "sh", "-c",
		`mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"`, n.Dir}
	ours := n.StartUnder(readOnly, harness.Ours)
	awaitPlain(n, ours, "read-only")
	driver.Terminate()
	driver = n.StartDriver()
	n.AwaitReached(n.Announced(), soon, driver)
	if got := n.Listing(); !slices.Equal(got, []string{"csi.sock"}) {
		n.Errorf("in the driver's directory: %q", got)
	}
	ours.Terminate()
	n.AwaitGone(soon)
	n.AssertLeft()
}

// TestStrict: with --compat=strict a fresh node looks as with an incumbent, file for
// file, but for the lock; and the driver gets no other calls. (It gets GetPluginInfo
// once more: it is asked again when its socket is about to be announced.)
func TestStrict(t *testing.T) {
	t.Parallel()
	type seen struct{ dir, registry, calls []string }
	look := func(t *testing.T, d deployment) (during, after seen) {
		n := harness.New(t, bin)
		n.StartKubelet()
		p := d.start(n, "node")
		n.AwaitQuiet(onePair, soon)
		if got := n.Announced(); got != n.Socket {
			n.Errorf("kubelet was told %s, want %s", got, n.Socket)
		}
		during = seen{n.Listing(), n.ListRegistry(), calls(p.driver)}
		p.registrar.Terminate()
		n.AwaitGone(soon)
		return during, seen{n.Listing(), n.ListRegistry(), calls(p.driver)}
	}
	theirs, theirsAfter := look(t, incumbent)
	ours, oursAfter := look(t, deployment{kind: harness.Ours, args: []string{"--compat=strict"}})
	theirs.registry = slices.Sorted(slices.Values(append(theirs.registry, lease)))
	for _, c := range []struct {
		what       string
		want, have []string
	}{
		{"the driver's directory", theirs.dir, ours.dir},
		{"the registration directory", theirs.registry, ours.registry},
		{"the driver's calls", theirs.calls, ours.calls},
		{"the driver's directory afterwards", theirsAfter.dir, oursAfter.dir},
		{"the registration directory afterwards", theirsAfter.registry, oursAfter.registry},
		{"the driver's calls afterwards", theirsAfter.calls, oursAfter.calls},
	} {
		if !slices.Equal(c.want, c.have) {
			t.Errorf("%s: %q, with an incumbent and the lock: %q", c.what, c.have, c.want)
		}
	}
}

// calls are the methods with which a driver was called, each once.
func calls(driver *harness.Proc) []string {
	var methods []string
	for _, line := range driver.Lines() {
		if method, _, ok := strings.Cut(line, " "); ok && strings.HasPrefix(method, "/") {
			methods = append(methods, method)
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}
