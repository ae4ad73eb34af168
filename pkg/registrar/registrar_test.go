package registrar

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRegistersAndLeavesNothing(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	stop, _ := n.run(nil)
	eventually(t, "published", func() bool { return exists(n.path()) })
	info := n.kubelet(&registerapi.RegistrationStatus{PluginRegistered: true})
	if info.Type != registerapi.CSIPlugin || info.Name != "d.example.com" || info.Endpoint != "/host/csi.sock" || len(info.SupportedVersions) != 1 || info.SupportedVersions[0] != "1.0.0" {
		t.Errorf("kubelet is told %v", info)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(n.regDir())
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestEndsWhileItWaitsForTheDriver(t *testing.T) {
	for _, started := range []bool{false, true} { // no socket; a driver that does not know its name
		n := newNode(t)
		if started {
			n.startDriver("")
		}
		stop, _ := n.run(nil)
		if started {
			eventually(t, "asked twice", func() bool { return n.driver.calls.Load() > 1 })
		}
		before := time.Now()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(before); took > time.Second {
			t.Errorf("took %v", took)
		}
	}
}

func TestWaitsForALateDriver(t *testing.T) {
	n := newNode(t)
	n.startDriver("")
	n.run(nil)
	eventually(t, "asked more than once", func() bool { return n.driver.calls.Load() > 2 })
	n.driver.is("d.example.com")
	eventually(t, "published", func() bool { return exists(n.path()) })
}

func TestDriverWait(t *testing.T) {
	n := newNode(t)
	_, result := n.run(func(c *Config) { c.DriverWait = 50 * time.Millisecond })
	err := <-result
	if err == nil || !strings.Contains(err.Error(), "--driver-wait=50ms") || !strings.Contains(err.Error(), n.csiSocket()) {
		t.Errorf("got %v", err)
	}
}

func TestAFileInTheWayStaysAndEndsTheRun(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	if err := os.WriteFile(n.path(), []byte("somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, result := n.run(nil)
	err := <-result
	if err == nil || !strings.Contains(err.Error(), n.path()) || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("got %v", err)
	}
	if b, err := os.ReadFile(n.path()); err != nil || string(b) != "somebody's" {
		t.Errorf("the file now has %q, %v", b, err)
	}
}

func TestALostDirectoryEndsTheRun(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	_, result := n.run(nil)
	eventually(t, "published", func() bool { return exists(n.path()) })
	if err := os.RemoveAll(n.regDir()); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("got %v", err)
	}
}

func TestAnnouncesAgainAfterARefusal(t *testing.T) {
	for name, result := range map[string]*registerapi.RegistrationStatus{
		"refused": {PluginRegistered: false, Error: "NodeGetInfo failed"}, "hung up": nil,
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.startDriver("d.example.com")
			n.run(nil)
			eventually(t, "published", func() bool { return exists(n.path()) })
			before, err := os.Lstat(n.path())
			if err != nil {
				t.Fatal(err)
			}
			n.kubelet(result)
			eventually(t, "announced again", func() bool {
				now, err := os.Lstat(n.path())
				return err == nil && !os.SameFile(before, now)
			})
		})
	}
}

// Without a lock the socket is served as usual, put back when somebody removes it,
// and never removed at the end: who else is there cannot be known.
func TestWithoutALockNothingIsRemoved(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	if err := os.Mkdir(n.lock(), 0o700); err != nil {
		t.Fatal(err)
	}
	stop, _ := n.run(nil)
	eventually(t, "published", func() bool { return exists(n.path()) })
	if err := os.Remove(n.path()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "put back", func() bool { return exists(n.path()) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if !exists(n.path()) || !exists(n.lock()) {
		t.Error("something was removed")
	}
}

// The newcomer takes over, the elder stands by; when the newcomer ends, the elder
// takes the path back. A dial in between is always answered.
func TestOverlap(t *testing.T) {
	n := newNode(t)
	n.startDriver("d.example.com")
	stopElder, _ := n.run(nil)
	eventually(t, "published", func() bool { return exists(n.path()) })
	elder := n.acceptor()
	stopNewcomer, _ := n.run(nil)
	eventually(t, "the newcomer accepts", func() bool { a := n.acceptor(); return a != "" && a != elder })
	if err := stopNewcomer(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the elder accepts again", func() bool { return n.acceptor() == elder })
	if err := stopElder(); err != nil {
		t.Fatal(err)
	}
	if exists(n.path()) || exists(n.lock()) {
		t.Error("the last one left something behind")
	}
}

func TestHealthz(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.run(func(c *Config) { c.HTTPEndpoint = address })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	code := func() int {
		res, err := client.Get("http://" + address + "/healthz")
		if err != nil {
			return 0
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	eventually(t, "404 before the driver has answered", func() bool { return code() == http.StatusNotFound })
	n.startDriver("d.example.com")
	eventually(t, "200 when the socket is there", func() bool { return code() == http.StatusOK })
}

// A hostPath that was removed and made anew on the host stays the removed one for
// the container: nothing can appear in it, so waiting would be for ever.
func TestALostDriverDirectoryEndsTheRun(t *testing.T) {
	n := newNode(t)
	below := filepath.Join(n.dir, "d")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(below)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	if err := os.Remove(below); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	gone := fmt.Sprintf("/proc/self/fd/%d/csi.sock", held.Fd()) // as a mount would
	_, result := n.run(func(c *Config) { c.CSIAddress = gone })
	if err := <-result; err == nil || !strings.Contains(err.Error(), "restart") {
		t.Errorf("got %v", err)
	}
}
