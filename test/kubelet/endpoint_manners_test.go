package kubelet_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
	"golang.org/x/sys/unix"
)

// newcomer is how a driver comes to csi.sock.
type newcomer func(t *testing.T, n *harness.Node) *harness.Proc

func usual(_ *testing.T, n *harness.Node) *harness.Proc { return n.StartDriver() }

// byRename binds beside csi.sock and renames.
func byRename(t *testing.T, n *harness.Node) *harness.Proc {
	t.Helper()
	fresh := filepath.Join(n.Dir, "csi.sock.new")
	d := n.StartDriver("--endpoint="+fresh, "--unlink=false")
	if err := os.Rename(fresh, n.Socket); err != nil {
		t.Fatal(err)
	}
	return d
}

// refusing starts only if nobody listens at csi.sock.
func refusing(_ *testing.T, n *harness.Node) *harness.Proc { return n.StartDriver("--refuse-live") }

// wiping empties its directory first, as with rm -rf *, or with the names that begin
// with a dot too.
func wiping(dots bool) newcomer {
	return func(t *testing.T, n *harness.Node) *harness.Proc {
		t.Helper()
		for _, name := range n.Listing() {
			if !dots && strings.HasPrefix(name, ".") {
				continue
			}
			if err := os.RemoveAll(filepath.Join(n.Dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		return n.StartDriver()
	}
}

// remaking removes its directory first, and makes it again.
func remaking(t *testing.T, n *harness.Node) *harness.Proc {
	t.Helper()
	removeAll(t, n.Dir)
	if err := os.MkdirAll(n.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return n.StartDriver()
}

// TestDriverManners: however a driver goes and the next one comes, one after the other
// or side by side, the next one is reached at the announced endpoint, its csi.sock is
// what it made, and nothing of ours is left that leads to nobody.
func TestDriverManners(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		args []string
		end  func(*harness.Proc)
	}{
		"unlinks and closes":         {nil, func(p *harness.Proc) { p.Terminate() }},
		"closes and does not unlink": {[]string{"--unlink=false"}, func(p *harness.Proc) { p.Terminate() }},
		"is killed":                  {nil, (*harness.Proc).Kill},
	}
	comes := map[string]newcomer{
		"removes and binds": usual, "binds and renames": byRename, "refuses a live one": refusing,
		"wipes": wiping(false), "wipes dot files too": wiping(true), "makes its directory anew": remaking,
	}
	for endName, e := range ends {
		for comeName, come := range comes {
			for _, overlap := range []bool{false, true} {
				if overlap && comeName == "refuses a live one" {
					continue // by its nature
				}
				name := "one " + endName + ", the next " + comeName
				if overlap {
					name += ", side by side"
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					n := harness.New(t, bin)
					n.StartKubelet()
					old := n.StartDriver(e.args...)
					ours := n.Start(harness.Ours)
					n.AwaitRegistered(soon)
					n.AwaitNamed(soon)
					if !overlap {
						e.end(old)
					}
					next := come(t, n)
					made, err := os.Lstat(n.Socket)
					if err != nil {
						t.Fatal(err)
					}
					n.AwaitReached(n.Endpoint, soon, next)
					if overlap {
						n.AwaitNamed(soon)
						e.end(old)
						n.AwaitReached(n.Endpoint, soon, next)
					}
					n.Await("only the symlink and what answers", soon, func() bool { return n.DirTrouble() == "" })
					if now, err := os.Lstat(n.Socket); err == nil && (!os.SameFile(made, now) || made.Mode() != now.Mode()) {
						n.Errorf("csi.sock is not what the driver made: %v, was %v", now, made)
					}
					if !n.Registered() {
						n.Errorf("not registered any more")
					}
					next.Terminate()
					ours.Terminate()
					n.AwaitGone(soon)
					n.AssertLeft()
					n.AssertDir()
				})
			}
		}
	}
}

// TestDriverDirectoryRemovedUnderAMount: in a container the driver's directory is a
// mount of what is there no more: no socket can appear in it again. That is seen without
// anything else to do; it says so and exits 1, so that a restart mounts it afresh.
func TestDriverDirectoryRemovedUnderAMount(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		skip(t, "needs root for a mount namespace")
	}
	for name, args := range map[string][]string{
		"keeps the endpoint": nil,
		"does not keep it":   {"--keep-endpoint=false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			n.StartKubelet()
			n.StartDriver()
			container, inside := mounted(t, n, n.Dir)
			args := append([]string{"--csi-address=" + filepath.Join(inside, "csi.sock")}, args...)
			ours := n.StartUnder(container, harness.Ours, args...)
			n.AwaitRegistered(soon)
			n.Mark("the driver's directory is made anew")
			next := remaking(t, n)
			if code := ours.AwaitExit(soon); code != 1 {
				t.Errorf("exit %d, want 1", code)
			}
			ours.AwaitSaid("restart", soon)
			ours = n.StartUnder(container, harness.Ours, args...)
			n.AwaitAcceptor(soon, ours)
			n.AwaitRegistered(soon)
			n.AwaitReached(n.Announced(), soon, next)
			ours.Terminate()
			n.AssertLeft()
		})
	}
}

// TestDriverWatched: the driver's death, its return, its restart and its replacement
// are in the log within a second, once each, also after a time in which nothing
// happened, and also where the directory cannot be watched.
func TestDriverWatched(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		launcher []string
		args     []string
	}{
		"usual":           {},
		"plain endpoint":  {args: []string{"--keep-endpoint=false"}},
		"without a watch": {launcher: denied(t, unix.SYS_INOTIFY_INIT1, unix.EMFILE)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t, bin)
			n.StartKubelet()
			driver := n.StartDriver()
			ours := n.StartUnder(c.launcher, harness.Ours, c.args...)
			n.AwaitRegistered(soon)
			idle := func() { n.AwaitQuiet(onePair, soon) }
			said := func(what string, do func()) {
				t.Helper()
				idle()
				before := ours.Said(what)
				n.Mark("what is to be said: %s", what)
				do()
				began := time.Now()
				n.Await("it to say "+what, soon, func() bool { return ours.Said(what) > before })
				// A second is what is promised, and another one is this machine's.
				if took := time.Since(began); took > 2*time.Second {
					n.Errorf("it took %v until it said %q", took, what)
				}
				idle()
				if got := ours.Said(what) - before; got != 1 {
					n.Errorf("it said %q %d times", what, got)
				}
			}
			said("The CSI driver has ended", driver.Kill)
			said("on a new socket", func() { driver = n.StartDriver() })
			said("The CSI driver's socket was removed", func() { driver.Terminate() })
			said("on a new socket", func() { driver = n.StartDriver() })
			said("on a new socket", func() { n.StartDriver() }) // and takes the first one's name
			ours.Terminate()
			n.AssertLeft()
		})
	}
}
