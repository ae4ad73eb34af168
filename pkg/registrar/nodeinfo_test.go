//go:build linux

package registrar

import (
	"os"
	"syscall"
	"testing"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// A driver that restarts alone is announced again only if kubelet would learn anything
// new from that.
func TestADriverRestartsAlone(t *testing.T) {
	for name, test := range map[string]struct {
		mode, node string
		announced  bool
	}{
		"the same node info":       {RestartCompare, "n1", false},
		"other node info":          {RestartCompare, "n2", true},
		"always":                   {RestartAlways, "n1", true},
		"never, and other":         {RestartNever, "n2", false},
		"the default is comparing": {"", "n2", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			first := &generation{n: n, id: "first", node: "n1"}
			first.start()
			r, _, _ := n.begin(func(c *Config) { n.keeps(c); c.OnDriverRestart = test.mode })
			eventually(t, "published", func() bool { return exists(n.path()) })
			before := inode(t, n.path())
			n.kubelet(&registerapi.RegistrationStatus{PluginRegistered: true})
			eventually(t, "the registrar knows what kubelet has", func() bool { return r.info.has() != "" })

			first.server.Stop()
			(&generation{n: n, id: "second", node: test.node}).start()
			if test.announced {
				eventually(t, "announced again", func() bool { return exists(n.path()) && inode(t, n.path()) != before })
				return
			}
			eventually(t, "the endpoint leads to the second, and it was looked at", func() bool {
				r.info.mu.Lock()
				defer r.info.mu.Unlock()
				return n.reached() == "second" && r.info.leads == r.info.of
			})
			if inode(t, n.path()) != before {
				t.Error("announced again, and nothing has changed")
			}
		})
	}
}

// inode is the number of what stands at path; an open listener pins it.
func inode(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}
