package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// printRecords bounds the trace that a failed test prints.
const printRecords = 3000

// Node is a make-believe node: a kubelet directory and the processes on it. Its
// own Plugin is the one most tests need; Plugin makes more of them. The methods
// of Node, Plugin and Proc fail the test by themselves.
type Node struct {
	*Plugin
	Root     string // kubelet's directory; short, for the 107 bytes of a socket's path
	Registry string // plugins_registry
	CSINode  *Timeline
	Trace    *Trace
	Args     []string // for each registrar of ours, before those that Start is given

	tb    testing.TB
	bin   Binaries
	watch *fsnotify.Watcher

	mu         sync.Mutex
	procs      []*Proc
	count      map[Kind]int
	complaints []string
	calls      []Call // kubelet's CSI handler, this and earlier kubelets
	ready      int    // kubelets that said they are
	readyAt    time.Time
}

// New makes a node with one plugin and no process.
func New(tb testing.TB, bin Binaries) *Node {
	tb.Helper()
	dependOnRun()
	root, err := os.MkdirTemp("", "hf")
	if err != nil {
		tb.Fatal(err)
	}
	n := &Node{
		Root: root, Registry: filepath.Join(root, "plugins_registry"),
		CSINode: &Timeline{}, Trace: newTrace(),
		tb: tb, bin: bin, count: map[Kind]int{},
	}
	tb.Cleanup(n.cleanup)
	n.Plugin = n.AddPlugin("hold.example.com")
	n.MakeRegistry()
	return n
}

// MakeRegistry makes the registration directory and watches it, also after
// somebody deleted it.
func (n *Node) MakeRegistry() {
	n.tb.Helper()
	if err := os.MkdirAll(n.Registry, 0o755); err != nil {
		n.tb.Fatal(err)
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		n.tb.Fatal(err)
	}
	if err := w.Add(n.Registry); err != nil {
		n.tb.Fatal(err)
	}
	if n.watch != nil {
		n.watch.Close()
	}
	n.watch = w
	go func() {
		for e := range w.Events {
			if !e.Has(fsnotify.Write) {
				n.Trace.add(time.Now(), "files", "%s %s", strings.ToLower(e.Op.String()), filepath.Base(e.Name))
			}
		}
	}()
}

func (n *Node) cleanup() {
	n.mu.Lock()
	procs := slices.Clone(n.procs)
	n.mu.Unlock()
	for _, p := range procs {
		p.reap()
	}
	n.watch.Close()
	for _, c := range n.complaints {
		n.tb.Error(c)
	}
	wanted := os.Getenv("HOLDFAST_TRACE") // to be printed also if all is well; how many records, if it is a number
	if n.tb.Failed() || wanted != "" {
		limit, err := strconv.Atoi(wanted)
		if err != nil {
			limit = printRecords
		}
		n.tb.Log(n.Trace.String(limit))
	}
	n.Trace.forget()
	if err := os.RemoveAll(n.Root); err != nil {
		n.tb.Error(err)
	}
}

// complain records a failure found outside the test's goroutine.
func (n *Node) complain(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.complaints = append(n.complaints, fmt.Sprintf(format, args...))
}

// Mark writes a line into the trace and gives its time.
func (n *Node) Mark(format string, args ...any) time.Time {
	at := time.Now()
	n.Trace.add(at, "test", format, args...)
	return at
}

// Errorf fails the test and goes on; the trace shows where.
func (n *Node) Errorf(format string, args ...any) {
	n.tb.Helper()
	n.Mark("ERROR "+format, args...)
	n.tb.Errorf(format, args...)
}

// Fatalf fails the test and ends it.
func (n *Node) Fatalf(format string, args ...any) {
	n.tb.Helper()
	n.Mark("FATAL "+format, args...)
	n.tb.Fatalf(format, args...)
}

// Await waits until the condition holds. It is asked whenever something was
// seen, and every 10 ms, since files and sockets announce nothing.
func (n *Node) Await(what string, within time.Duration, holds func() bool) {
	n.tb.Helper()
	if !n.Try(within, holds) {
		n.Fatalf("waited %v in vain for %s", within, what)
	}
}

// Try is Await that gives up quietly.
func (n *Node) Try(within time.Duration, holds func() bool) bool {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		changed := n.Trace.changed()
		if holds() {
			return true
		}
		select {
		case <-changed:
		case <-again.C:
		case <-deadline.C:
			return holds()
		}
	}
}

// AwaitQuiet waits until nothing has happened for a while in the registration
// directory, the CSINode and kubelet's CSI handler. Kubelet acts once a second,
// so 2.5 s without anything mean that it is done.
func (n *Node) AwaitQuiet(quiet, within time.Duration) {
	n.tb.Helper()
	from := time.Now()
	n.Await(fmt.Sprintf("%v of quiet", quiet), within, func() bool {
		last := n.Trace.last("files", "csinode", "csi")
		if last.Before(from) {
			last = from
		}
		return time.Since(last) >= quiet
	})
}

// AssertLeft checks what is in the registration directory: exactly these names.
func (n *Node) AssertLeft(want ...string) {
	n.tb.Helper()
	entries, err := os.ReadDir(n.Registry)
	if err != nil {
		n.Errorf("what is left in the registration directory: %v", err)
		return
	}
	got := make([]string, 0, len(entries))
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		n.Errorf("left in the registration directory: %q, want %q", got, want)
	}
}

// AssertLeftAmong checks that nothing but these names is in the registration
// directory.
func (n *Node) AssertLeftAmong(may ...string) {
	n.tb.Helper()
	entries, err := os.ReadDir(n.Registry)
	if err != nil {
		n.Errorf("what is left in the registration directory: %v", err)
		return
	}
	for _, e := range entries {
		if !slices.Contains(may, e.Name()) {
			n.Errorf("left in the registration directory: %s, may be left: %q", e.Name(), may)
		}
	}
}

// Logf prints something that is worth knowing also when the test passes.
func (n *Node) Logf(format string, args ...any) {
	n.tb.Helper()
	n.Mark(format, args...)
	n.tb.Logf(format, args...)
}
