package endpoint_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each guard of Step is taken out of the source, and the explorer, built with that
// source, has to print a bad trace. A guard that is never missed is no guard.
var guards = []struct {
	name, old, new string
	scenario       string // where it is missed
	want           string // what the explorer then says
}{
	{"only-to-an-answer", "case ID{}: // guard", "case ID{Dev: 9}: // guard", "hangs", "a driver that has not answered"},
	{"asks-before-it-turns", "\treturn Asking, ask\n", "\treturn s.turn(Target{Kind: ToName, ID: ask.IDs[0]})\n", "two-generations", "violates I10"},
	{"turns-when-the-socket-is-gone", "\tcase v.Link == socket && (v.Socket.Alive() || unsure(v.Socket)):", "\tcase v.Link == socket:", "two-generations", "leads to a symlink"},
	{"turns-when-the-name-is-dead", "find(v, v.Link.ID).Alive()", "true", "three-generations", "violates I10"},
	{"stays-with-who-answers", "\tif s.Asked = v.Link; !leads {", "\tif s.Asked = socket; !leads {", "hangs", "violates I10"},
	{"only-the-dead-go", "if o.Dead() { // guard", "if !o.Alive() && o.ID != (ID{}) { // guard", "one-generation", "second name of a living driver"},
	{"dead-twice", "if rested && before.Refusals > 0 {", "if before.Refusals > 0 {", "one-generation", "violates I10"},
	{"removes-the-dead", "if o.Dead() { // guard", "if false { // guard", "three-generations", "stays"},
	{"pins-what-it-sees", "return begin(s, Pinning, Action{Do: Pin, ID: s.View.Socket.ID})", "_ = 0", "two-generations", "no second name"},
	{"no-name-for-the-dead", "v.ID != (ID{}) && !v.Dead() &&", "v.ID != (ID{}) &&", "two-generations", "gives a second name"},
	{"looks-again-after-a-hint", "\tif s.Op != Idle {\n\t\ts.Again = true\n\t\treturn s, nil\n\t}\n\treturn look(s)", "\treturn s, nil", "one-generation", "violates I10"},
	{"the-last-one-points-back", "\t\treturn s.turn(socket)\n\tcase s.Leave != Stays:", "\t\treturn Idle, Action{}\n\tcase s.Leave != Stays:", "two-generations", "the last one out"},
}

func TestEveryGuardIsMissed(t *testing.T) {
	for _, g := range guards {
		t.Run(g.name, func(t *testing.T) {
			cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-overlay="+without(t, g.old, g.new), "-run=^TestExplorer$/^"+g.scenario+"$", ".")
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Fatalf("the explorer misses nothing without the guard:\n%s", out)
			case !strings.Contains(string(out), g.want):
				t.Fatalf("the explorer fails, but not with %q:\n%s", g.want, out)
			case !strings.Contains(string(out), "  1. "):
				t.Fatalf("no trace:\n%s", out)
			}
		})
	}
}

// without returns an overlay for the go command in which Step has instead where the
// guard was.
func without(t *testing.T, guard, instead string) string {
	t.Helper()
	const file = "step.go"
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), guard); n != 1 {
		t.Fatalf("%s has %d times, and not once:\n%s", file, n, guard)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, file)
	if err := os.WriteFile(changed, []byte(strings.Replace(string(source), guard, instead, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	original, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
