package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// lacking says that this process is one which lacks something.
const lacking = "HOLDFAST_TEST_LACKING"

// TestRequire: what the machine lacks is named, all of it, before anything is built.
func TestRequire(t *testing.T) {
	n, err := New(Config{Dir: filepath.Join(t.TempDir(), "n"), Cache: t.TempDir()}, ".")
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(lacking) != "" {
		fmt.Println(n.require(t.Context()))
		return
	}
	if os.Geteuid() != 0 {
		if err := n.require(t.Context()); err == nil || !strings.Contains(err.Error(), "a node needs root") {
			t.Errorf("without root: %v", err)
		}
		t.Skip("NOT TESTED: root without a capability, which needs root")
	}
	for _, c := range []struct {
		name  string
		under []string
		want  []string
	}{
		{"a capability", []string{"setpriv", "--bounding-set=-sys_admin,-mknod"}, []string{"CAP_SYS_ADMIN", "CAP_MKNOD", "mount and PID namespaces"}},
		{"cgroups", []string{"unshare", "--mount", "sh", "-ec", readOnlyCgroups + `exec "$@"`, "sh"}, []string{"the right to make a cgroup"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			argv := append(c.under, os.Args[0], "-test.run=^TestRequire$")
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			cmd.Env = append(os.Environ(), lacking+"=1")
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if errors.As(err, &exit) && strings.Contains(string(out), "ermitted") && !strings.Contains(string(out), "lacks") {
				t.Skipf("NOT TESTED: this machine does not even let %s: %s", c.under[0], out)
			}
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, want := range append(c.want, "this machine cannot run a node, it lacks: ") {
				if !strings.Contains(string(out), want) {
					t.Errorf("it does not name %q: %s", want, out)
				}
			}
		})
	}
}

// readOnlyCgroups is what an unprivileged container finds.
const readOnlyCgroups = `awk '/ - cgroup2? / { print $5 }' /proc/self/mountinfo | while read -r at; do mount -o remount,bind,ro "$at"; done; `
