//go:build linux

package registrar

import (
	"testing"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// shares is a configuration as the command has it by default.
func (n *node) shares(c *Config) {
	n.keeps(c)
	c.Handover = true
}

// registered starts the first instance, and confirms as kubelet does.
func (n *node) registered(change func(*Config)) (first *Registrar, stop func() error) {
	n.t.Helper()
	(&generation{n: n, id: "driver", node: "n1"}).start()
	first, stop, _ = n.begin(change)
	eventually(n.t, "published", func() bool { return exists(n.path()) })
	n.kubelet(&registerapi.RegistrationStatus{PluginRegistered: true})
	eventually(n.t, "the registrar knows what kubelet has", func() bool { return first.info.has() != "" })
	return first, stop
}

// accepting says that r has what it takes to hand over.
func (r *Registrar) accepting() bool {
	s := r.share.Load()
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepts
}

func (r *Registrar) hasSpare() bool {
	s := r.share.Load()
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spare != nil && !s.accepts
}

func TestANewcomerAdoptsTheListener(t *testing.T) {
	n := newNode(t)
	first, stopFirst := n.registered(n.shares)
	before := inode(t, n.path())

	second, stopSecond, _ := n.begin(n.shares)
	eventually(t, "the second accepts, the first has a spare", func() bool { return second.accepting() && first.hasSpare() })
	eventually(t, "the second answers", func() bool { return n.acceptor() == second.share.Load().self.Instance })
	if err := stopFirst(); err != nil {
		t.Fatal(err)
	}
	third, stopThird, _ := n.begin(n.shares)
	eventually(t, "the third accepts, the second has a spare", func() bool { return third.accepting() && second.hasSpare() })
	if err := stopThird(); err != nil { // the newest leaves
		t.Fatal(err)
	}
	eventually(t, "the second accepts again", func() bool { return second.accepting() })
	eventually(t, "the second answers again", func() bool { return n.acceptor() == second.share.Load().self.Instance })
	if inode(t, n.path()) != before {
		t.Error("kubelet has seen another socket")
	}
	if err := stopSecond(); err != nil {
		t.Fatal(err)
	}
	if exists(n.path()) || exists(n.lock()) {
		t.Error("the last one has left something")
	}
}

// Whatever is to happen when a driver restarts, a takeover is none.
func TestATakeoverIsNoRestart(t *testing.T) {
	for _, mode := range []string{RestartAlways, RestartNever, RestartCompare} {
		t.Run(mode, func(t *testing.T) {
			n := newNode(t)
			first, _ := n.registered(func(c *Config) { n.shares(c); c.OnDriverRestart = mode })
			before := inode(t, n.path())
			second, _, _ := n.begin(func(c *Config) { n.shares(c); c.OnDriverRestart = mode })
			eventually(t, "the second accepts, the first has a spare", func() bool { return second.accepting() && first.hasSpare() })
			eventually(t, "the second has compared", func() bool {
				second.info.mu.Lock()
				defer second.info.mu.Unlock()
				return second.info.leads == second.info.of || mode == RestartNever
			})
			if inode(t, n.path()) != before {
				t.Error("announced again")
			}
		})
	}
}

func TestNothingIsHandedOver(t *testing.T) {
	for name, second := range map[string]func(*node, *Config){
		"kubelet would be told another endpoint": func(n *node, c *Config) { n.shares(c); c.KeepEndpoint = false },
		"the newcomer is to announce":            func(n *node, c *Config) { n.shares(c); c.Handover = false },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			first, _ := n.registered(n.shares)
			before := inode(t, n.path())
			n.run(func(c *Config) { second(n, c) })
			eventually(t, "published", func() bool { return exists(n.path()) && inode(t, n.path()) != before })
			eventually(t, "the first shares nothing", func() bool { return !first.accepting() })
		})
	}
	t.Run("kubelet has not confirmed", func(t *testing.T) {
		n := newNode(t)
		n.generation("driver")
		n.run(n.shares)
		eventually(t, "published", func() bool { return exists(n.path()) })
		before := inode(t, n.path())
		n.run(n.shares)
		eventually(t, "published again", func() bool { return exists(n.path()) && inode(t, n.path()) != before })
	})
}

// Kubernetes ends the old pod as soon as the new one's containers run, which is a
// moment before its registrar can take over.
func TestALeaverWaitsForASuccessorThatIsComing(t *testing.T) {
	n := newNode(t)
	first, stop := n.registered(n.shares)
	before := inode(t, n.path())
	(&generation{n: n, id: "successor", node: "n1"}).start()
	eventually(t, "the new process of the driver is noticed", first.keeper.expectsSuccessor)
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	second, stopSecond, _ := n.begin(n.shares)
	eventually(t, "the second accepts", second.accepting)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if inode(t, n.path()) != before {
		t.Error("kubelet has seen another socket")
	}
	if err := stopSecond(); err != nil {
		t.Error(err)
	}
	if exists(n.path()) {
		t.Error("nobody came, and the socket is still there")
	}
}

// A copy of a DaemonSet with a csi.sock of its own: its endpoint ends with it, so nobody
// goes on with its listener.
func TestNobodyGoesOnWithAnotherEndpoint(t *testing.T) {
	n := newNode(t)
	first, _ := n.registered(n.shares)
	second, stopSecond, _ := n.begin(func(c *Config) { n.shares(c); c.KeepEndpoint = false })
	eventually(t, "the second accepts", func() bool { return second.accepting() && !first.accepting() })
	n.kubelet(&registerapi.RegistrationStatus{PluginRegistered: true})
	other := inode(t, n.path())
	eventually(t, "the first stands by", func() bool { return n.acceptor() == second.share.Load().self.Instance })
	s := first.share.Load()
	s.stands(t.Context(), second.share.Load().self, n.csiSocket())
	s.mu.Lock()
	if s.follows != "" || s.spare != nil {
		t.Error("the first is to get a copy of a listener with another endpoint")
	}
	s.mu.Unlock()
	if err := stopSecond(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first accepts", func() bool { return n.acceptor() == first.share.Load().self.Instance })
	if inode(t, n.path()) == other {
		t.Error("kubelet keeps the endpoint of the one that has left")
	}
	if got := n.kubelet(nil).GetEndpoint(); got != n.link() {
		t.Errorf("kubelet is told %s", got)
	}
}
