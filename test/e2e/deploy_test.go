package e2e_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/kit"
)

// TestMigrate: incumbent, Holdfast, incumbent, by kubectl set image. After each
// step the driver is there. The drivers of a surge are tidy, for a driver that
// removes its successor's csi.sock cuts off the incumbent that comes after Holdfast.
func TestMigrate(t *testing.T) {
	for _, c := range []struct {
		name   string
		surge  bool
		driver []string
	}{{"surge", true, tidy}, {"plain", false, nil}} {
		t.Run(c.name, func(t *testing.T) {
			r := kit.New(t, cluster)
			old := r.Register(kit.Plugin{Name: "node", Registrar: peer.image(), Surge: c.surge, DriverArgs: c.driver})
			load := r.StartLoad()
			for _, w := range []who{holdfast, peer} {
				since := r.SetImage("node", w.image())
				r.AwaitRolled("node", patient, old)
				old = r.AwaitReady("node", soon)
				mustKeep(t, r, w, settle)
				t.Logf("to %s:", w)
				say(t, r, since)
			}
			mustServe(t, load, 10*time.Second)
		})
	}
}

// TestRollBack: from Holdfast to the incumbent with a volume mounted. Kubelet keeps
// for the volume's statistics the endpoint that it was told when it first asked: the
// statistics go on, from the incumbent's driver, and so do mounting and unmounting.
func TestRollBack(t *testing.T) {
	for _, c := range []struct {
		name    string
		surge   bool
		driver  []string
		prepare func(r *kit.Run, p kit.Plugin)
	}{
		{name: "plain"},
		{name: "surge", surge: true, driver: tidy},
		// The driver has lost its csi.sock to a copy's, so that kubelet reaches it
		// through the second name, and still answers when its registrar leaves.
		{name: "copied", driver: []string{"--stop-delay=3s"}, prepare: copyAndDelete},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := kit.New(t, cluster)
			p := kit.Plugin{Name: "node", Registrar: holdfast.image(), Surge: c.surge, DriverArgs: c.driver}
			old := r.Register(p)
			user := r.Start("user")
			r.AwaitMounted(user, soon)
			if c.prepare != nil {
				c.prepare(r, p)
			}
			r.AwaitStats("node", user, time.Now(), soon)
			load := r.StartLoad()
			since := r.SetImage("node", peer.image())
			r.AwaitRolled("node", patient, old)
			mustKeep(t, r, peer, settle)
			say(t, r, since)
			_, names := listings(r)
			t.Logf("in the driver's directory: %v", names)
			r.AwaitStats("node", user, time.Now(), soon)
			t.Logf("kubelet gets the volume's statistics")
			mustServe(t, load, 10*time.Second)
			r.DeletePod(user)
			t.Logf("the volume's pod went in %.1f s", r.AwaitPodGone(user, unmounts).Seconds())
		})
	}
}

func copyAndDelete(r *kit.Run, p kit.Plugin) {
	p.Name = "copy"
	r.Apply(p)
	r.AwaitReady("copy", soon)
	r.Delete("copy")
	r.AwaitNoPods("copy", patient)
}

// TestThreeDrivers: one pod with three drivers and three registrars, which share
// one /registration.
func TestThreeDrivers(t *testing.T) {
	both(t, func(t *testing.T, r *kit.Run, w who) {
		more := []string{"b-" + r.Driver, "c-" + r.Driver}
		members := []*kit.Membership{r.CSINode, r.Also(more[0]), r.Also(more[1])}
		all := func(present bool) func() bool {
			return func() bool {
				return !slices.ContainsFunc(members, func(m *kit.Membership) bool { return m.Last().Present != present })
			}
		}
		old := r.Register(kit.Plugin{Name: "node", Registrar: w.image(), Surge: true, MinReady: 2, Drivers: more})
		r.Await("all three in the CSINode", soon, all(true))
		since := r.Restart("node")
		r.AwaitRolled("node", patient, old)
		r.Watch(2 * settle)
		for _, m := range members {
			if w == holdfast {
				mustStay(t, m, since)
			} else if m.Last().Present {
				t.Errorf("the peer kept a driver: this test would not see a loss")
			}
		}
		if w == holdfast {
			deleted := r.Delete("node")
			r.Await("all three to leave the CSINode", soon, all(false))
			if took := time.Since(deleted); took > 3*time.Second {
				t.Errorf("left the CSINode after %v, want at most 3 s", took)
			}
		}
	})
}

// TestRestricted: no capability at all, a read-only root and 32 Mi do.
func TestRestricted(t *testing.T) {
	r := kit.New(t, cluster)
	yes, no := true, false
	p := kit.Plugin{Name: "node", Registrar: holdfast.image(), Surge: true}
	p.Modify = func(s *corev1.PodSpec) {
		c := registrarOf(s)
		c.SecurityContext = &corev1.SecurityContext{
			ReadOnlyRootFilesystem: &yes, AllowPrivilegeEscalation: &no,
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		limit(c, "32Mi")
	}
	old := r.Register(p)
	load := r.StartLoad()
	since := r.Restart("node")
	r.AwaitRolled("node", patient, old)
	judge(t, r, holdfast, load, since)
	if k := restarts(r); k > 0 {
		t.Errorf("%d restarts", k)
	}
}

func limit(c *corev1.Container, memory string) {
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
}

// TestNothingLeft: after the DaemonSet is gone, the registration directory has
// nothing of ours, and the driver's directory the symlink, which mounted volumes may
// keep, and the second name of a driver that still answered when the last registrar
// left. The next installation removes that name.
func TestNothingLeft(t *testing.T) {
	for name, driver := range map[string][]string{"ending": nil, "answering": slow} {
		t.Run(name, func(t *testing.T) {
			r := kit.New(t, cluster)
			p := kit.Plugin{Name: "node", Registrar: holdfast.image(), DriverArgs: driver}
			const symlink = ".csi.sock.ep->csi.sock"
			for range 2 {
				r.Register(p)
				if reg, dir := listings(r); !slices.Equal(dir, []string{".csi.sock.N", symlink, "csi.sock"}) || len(reg) != 3 {
					t.Errorf("while it is installed: in plugins_registry %v, in the driver's directory %v", reg, dir)
				}
				deleted := r.Delete("node")
				r.AwaitGone(soon)
				if took := r.CSINode.Last().At.Sub(deleted); took > 3*time.Second {
					t.Errorf("the driver left the CSINode after %v, want at most 3 s", took)
				}
				r.AwaitNoPods("node", patient)
				reg, dir := listings(r)
				t.Logf("left in plugins_registry: %v; in the driver's directory: %v", reg, dir)
				if !slices.Equal(dir, []string{symlink}) && !slices.Equal(dir, []string{".csi.sock.N", symlink}) {
					t.Errorf("left in the driver's directory: %v, want the symlink and at most one second name", dir)
				}
				if len(reg) > 0 {
					t.Errorf("left in plugins_registry: %v, want nothing", reg)
				}
			}
		})
	}
}

// TestStrict: with --compat=strict there is on the node what the incumbent has there,
// and the lock.
func TestStrict(t *testing.T) {
	var registry, directory [2][]string
	for i, p := range []kit.Plugin{
		{Registrar: peer.image()},
		{Registrar: holdfast.image(), RegistrarArgs: []string{"--compat=strict"}},
	} {
		r := kit.New(t, cluster)
		p.Name = "node"
		r.Register(p)
		user := r.Start("user")
		r.AwaitMounted(user, soon)
		r.Watch(settle)
		registry[i], directory[i] = listings(r)
		r.DeletePod(user)
		r.AwaitPodGone(user, soon)
	}
	t.Logf("in plugins_registry: %v; in the driver's directory: %v", registry, directory)
	if want := append([]string{".DRIVER-reg.lease"}, registry[0]...); !slices.Equal(registry[1], want) {
		t.Errorf("in plugins_registry: %v, want %v", registry[1], want)
	}
	if !slices.Equal(directory[0], directory[1]) {
		t.Errorf("in the driver's directory: %v, want %v", directory[1], directory[0])
	}
}

// instance is what differs between two instances in the names of their files.
var instance = regexp.MustCompile(`(^\.DRIVER-reg|^\.csi\.sock)\.[0-9a-z]+(\.[0-9]+\.ctl)?$`)

// listings are what r.List gives, sorted, without what differs between two runs.
func listings(r *kit.Run) (registry, directory []string) {
	plain := func(names []string) []string {
		for i, name := range names {
			name = strings.ReplaceAll(name, r.Driver, "DRIVER")
			if name != ".DRIVER-reg.lease" {
				name = instance.ReplaceAllString(name, "$1.N")
			}
			names[i] = name
		}
		slices.Sort(names)
		return names
	}
	registry, directory = r.List()
	return plain(registry), plain(directory)
}
