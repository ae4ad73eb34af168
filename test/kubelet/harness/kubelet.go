package harness

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"
)

// Call is one call of kubelet's CSI handler, after it returned.
type Call struct {
	At     time.Time
	What   string // validate, register, deregister
	Driver string
	// Endpoint is where kubelet is told that the driver is.
	Endpoint string
	Error    string // why it was refused, if it was
}

// StartKubelet starts a kubelet and waits until it is ready. The CSINode is the
// one that an earlier kubelet on this node left.
func (n *Node) StartKubelet() *Proc {
	n.tb.Helper()
	n.mu.Lock()
	want := n.ready + 1
	n.mu.Unlock()
	p := n.start(Kubelet, []string{n.bin.Kubelet,
		"--root-dir=" + n.Root, "--node=node", "--csinode=" + filepath.Join(n.Root, "csinode.json"), "-v=4"}, n.heard)
	n.Await("kubelet to be ready", 20*time.Second, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.ready >= want
	})
	return p
}

// heard takes one line of a kubelet's standard output.
func (n *Node) heard(line string) {
	var e struct {
		At       int64
		Event    string
		Drivers  map[string]string
		Driver   string
		Endpoint string
		Error    string
	}
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		n.complain("kubelet says %q: %v", line, err)
		return
	}
	at := time.Unix(0, e.At)
	switch e.Event {
	case "ready":
		n.mu.Lock()
		n.ready++
		n.readyAt = at
		n.mu.Unlock()
		n.Trace.add(at, "csi", "kubelet is ready")
	case "csinode":
		n.CSINode.add(at, e.Drivers)
		n.Trace.add(at, "csinode", "drivers %v", e.Drivers)
	default:
		n.mu.Lock()
		n.calls = append(n.calls, Call{At: at, What: e.Event, Driver: e.Driver, Endpoint: e.Endpoint, Error: e.Error})
		n.mu.Unlock()
		said := ""
		if e.Error != "" {
			said = ": " + e.Error
		}
		n.Trace.add(at, "csi", "%s %s at %s%s", e.Event, e.Driver, e.Endpoint, said)
	}
}

// registered reports whether the last thing that the present kubelet did with
// the driver was to register it.
func (n *Node) registered(driver string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := len(n.calls) - 1; i >= 0; i-- {
		c := n.calls[i]
		if c.At.Before(n.readyAt) {
			return false
		}
		if c.Driver == driver && c.What != "validate" {
			return c.What == "register" && c.Error == ""
		}
	}
	return false
}

// Calls gives the calls of kubelet's CSI handler for the driver since from.
func (pl *Plugin) Calls(what string, from time.Time) []Call {
	pl.node.mu.Lock()
	defer pl.node.mu.Unlock()
	var found []Call
	for _, c := range pl.node.calls {
		if c.What == what && c.Driver == pl.Driver && !c.At.Before(from) {
			found = append(found, c)
		}
	}
	return found
}

// AwaitCall waits for one more call of kubelet's CSI handler after from, with
// this outcome.
func (pl *Plugin) AwaitCall(what string, refused bool, from time.Time, within time.Duration) Call {
	pl.node.tb.Helper()
	var found Call
	pl.node.Await(fmt.Sprintf("kubelet to %s %s (refused: %v)", what, pl.Driver, refused), within, func() bool {
		for _, c := range pl.Calls(what, from) {
			if (c.Error != "") == refused {
				found = c
				return true
			}
		}
		return false
	})
	return found
}
