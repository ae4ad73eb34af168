package ownership_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Each guard of Step is taken out of the source, and the explorer, built with that
// source, has to print a bad trace. A guard that is never missed is no guard.
var guards = []struct {
	name     string
	file     string
	old, new string
	scenario string // where it is missed
	want     string // what the explorer then says
}{
	{"announce-only-unconfirmed", "step.go", "if s.Kubelet != Refusing {", "if false {", "one-alone", "violates I6"},
	{"still-due", "step.go", "if s.Seen.Sight == Mine && !s.Due && !s.Stale {", "if false {", "one-alone", "violates I6"},
	{"announce-what-changed", "step.go", "if (s.Due || s.Stale) && !s.Giving {", "if s.Due && !s.Giving {", "one-changes", "violates I3"},
	{"changed-whatever-kubelet-says", "step.go", "if s.Seen.Sight == Mine && !s.Due && !s.Stale {", "if s.Seen.Sight == Mine && !s.Due {", "one-changes", "violates I3"},
	{"never-replace-an-answer", "step.go", "if s.Owed { // guard: never-replace", "if true { // guard: never-replace", "two-leave", "still accepts"},
	{"absent-twice", "step.go", "return s.Seen.Times >= absentLooks", "return true", "incumbent-start", "gets in the way of an incumbent"},
	{"dead-twice-to-publish", "step.go", "return s.Owed || s.Seen.Times >= deadLooks", "return true", "incumbent-start", "violates I1"},
	{"silent-thrice", "step.go", "return s.Owed || s.Seen.Times >= silentLooks", "return true", "two-slow", "violates I6"},
	{"only-the-willing", "step.go", "return begin(s, AskingDriver, Action{Do: AskDriver})\n}\n\n// publish", "return publish(s)\n}\n\n// publish", "one-alone", "violates I3"},
	{"let-go", "step.go", "\tif s.Accepting {\n\t\ts.Accepting, s.Kubelet", "\tif false {\n\t\ts.Accepting, s.Kubelet", "two-leave", "still accepts"},
	{"announce-again-after-a-refusal", "step.go", "case KubeletRefused:\n\t\ts.Kubelet = Refusing\n\t\treturn s, []Action{{Do: BackOff}}", "case KubeletRefused:\n\t\ts.Kubelet = Refusing\n\t\treturn s, nil", "one-alone/kubelet-1.34", "violates I3"},
	{"announce-again-after-a-hang-up", "step.go", "\t\ts.Kubelet = Refusing\n\t\treturn s, []Action{{Do: BackOff}}\n\tcase AnnounceDue", "\t\treturn s, nil\n\tcase AnnounceDue", "one-frozen/kubelet-1.34", "violates I3"},
	{"look-again-after-a-hint-is-lost", "step.go", "\tcase n == Tick:\n\t\treturn begin(s, Joining, Action{Do: Join})\n\t}\n\treturn look(s)", "\tcase n == Tick:\n\t\treturn s, nil\n\t}\n\treturn look(s)", "two-crash", "violates I3"},
	{"dead-twice-to-remove", "leave.go", "if s.Seen.Times < deadLooks {", "if false {", "incumbent-start", "violates I1"},
	{"only-mine-or-dead", "leave.go", `removable := mine || e.Sight == Refused`, `removable := mine || e.Sight == Refused || e.Sight == Ours`, "two-leave", "violates I1"},
	{"remove-needs-the-lease", "leave.go", "return begin(s, Claiming, Action{Do: Claim, Patient: true})", "s.Stage = Emptying\n\t\treturn begin(s, Removing, Action{Do: Remove, ID: e.ID})", "two-leave", "violates I2"},
	{"look-again-after-the-grant", "leave.go", "s.Lease, s.Stage = Exclusive, LastLook\n\t\treturn look(s)", "s.Lease, s.Stage = Exclusive, Emptying\n\t\treturn begin(s, Removing, Action{Do: Remove, ID: s.Seen.ID})", "two-leave", "violates I4"},
	{"claim-after-stop", "leave.go", "if s.Stage == Parting {", "if false {", "two-leave", "violates I4"},
	{"yield-to-a-leaver", "leave.go", "if e.Sight == Ours { // guard: yield", "if false { // guard: yield", "two-leave", "violates I4"},
	{"goodbye-first", "leave.go", "return s, append([]Action{{Do: Goodbye}}, actions...)", "return s, actions", "two-leave", "violates I4"},
	{"adopt-first", "step.go", "if s.Shares && s.Owed && s.Seen.Sight == Ours && !s.Alone {", "if false {", "share-crash", "violates I9"},
	{"ask-whoever-came", "step.go", "s.Seen, s.Alone = Sighting{}, false", "s.Seen = Sighting{}", "share-path-removed", "violates I9"},
	{"give-or-announce", "step.go", "if (s.Due || s.Stale) && !s.Giving {", "if s.Due || s.Stale {", "share-changes", "violates I9"},
	{"resume-after-all", "step.go", "if s.Seen.Sight == Silent && heir(s) {", "if false {", "share-freeze-leave", "violates I9"},
	{"turn-away-while-adopting", "step.go", "if s.Op == Adopting && n == KubeletAsked {", "if false {", "share-three-killed-asking/kubelet-1.34", "violates I3"},
	{"turn-away-while-giving", "step.go", "if s.Giving && n == KubeletAsked {", "if false {", "share-three-killed-asking/kubelet-1.34", "violates I3"},
	{"turn-away-before-announcing", "step.go", "if s.Shares && s.Stale && s.Op != Resting && n == KubeletAsked {", "if false {", "share-cut/kubelet-1.34", "violates I3"},
	{"give-as-the-acceptor", "share.go", "if !s.Accepting || s.Giving || s.Op == Publishing {", "if s.Giving || s.Op == Publishing {", "share-crash-loop", "violates I9"},
	{"one-newcomer-after-another", "share.go", "if !s.Accepting || s.Giving || s.Op == Publishing {", "if !s.Accepting || s.Op == Publishing {", "share-crash-loop", "violates I9"},
	{"give-or-publish", "share.go", "if !s.Accepting || s.Giving || s.Op == Publishing {", "if !s.Accepting || s.Giving {", "share-restarts", "violates I9"},
	{"give-only-confirmed", "share.go", "if s.Kubelet != Confirmed || s.Due || s.Stale {", "if s.Due || s.Stale {", "share-crash-loop/kubelet-1.34", "violates I3"},
	{"yield-what-waited", "share.go", "s.Spare, s.Due, s.Stale = false, false, true, false, false", "s.Spare, s.Due = false, false, true, false", "share-changes", "violates I6"},
	{"resume-unconfirmed", "share.go", "if s.Kubelet != Confirmed { // guard: resume", "if false { // guard: resume", "share-crash-loop/kubelet-1.34", "violates I3"},
	{"ask-again", "share.go", "return begin(s, Resting, Action{Do: Rest, Pause: AbsentPause})", "s.Alone = true\n\t\treturn publish(s)", "share-crash-loop", "violates I9"},
	{"leaver-turns-away", "leave.go", "if s.Shares && e.News == KubeletAsked {", "if false {", "share-crash-restart/kubelet-1.34", "violates I3"},
	{"the-lease-file-goes-last", "leave.go", "return s, append([]Action{{Do: RemoveLease}}, actions...)\n}\n\nfunc stop", "return s, actions\n}\n\nfunc stop", "one-alone", "violates I4"},
}

func TestEveryGuardIsMissed(t *testing.T) {
	for _, g := range guards {
		t.Run(g.name, func(t *testing.T) {
			overlay := without(t, g.file, g.old, g.new)
			cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-overlay="+overlay, "-run=^TestExplorer$/^"+strings.ReplaceAll(g.scenario, "/", "$/^"), ".")
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

// without returns an overlay for the go command in which file has instead where the
// guard was.
func without(t *testing.T, file, guard, instead string) string {
	t.Helper()
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

// The leaves have guards of their own, which the world of the explorer takes for
// granted. Here the world does without one of them; the leaves' own tests show that
// they have it.
func TestEveryGuardOfTheLeavesIsMissed(t *testing.T) {
	for _, g := range []struct {
		name  string
		m     model
		b     budget
		never bool
		want  string
	}{
		{"a claim minds held connections", model{noWitness: true}, budget{Ours: 2, Terms: 1, LeaseRemovals: 1}, false, "violates I5"},
		{"joining checks that the locked file has the name", model{noVerify: true}, budget{Ours: 3, Terms: 2}, false, "violates I5"},
		{"removing looks once more", model{noRecheck: true}, budget{Ours: 1, Terms: 1, Incumbents: 1}, false, "violates I1"},
		{"publishing at an absent path replaces nothing", model{noNoRepl: true}, budget{Ours: 2, PathRemovals: 1}, false, "violates I6"},
		{"publishing over a socket looks once more", model{overLetter: true}, budget{Ours: 3, Crashes: 1}, false, "violates I6"},
		{"a newcomer answers kubelet after the giver has yielded", model{shares: true, warm: 2, noThanks: true}, budget{Ours: 1, Crashes: 2, KubeletRestarts: 1}, true, "violates I3"},
		{"who is not the heir does not know what kubelet says", model{shares: true, warm: 2, noVoid: true}, budget{Ours: 1, Crashes: 2, KubeletRestarts: 1}, true, "violates I3"},
	} {
		t.Run(g.name, func(t *testing.T) {
			_, err := explore(&g.m, g.b, g.never, 5_000_000)
			if err == nil || !strings.Contains(err.Error(), g.want) {
				t.Fatalf("want %q, got %v", g.want, err)
			}
			t.Log(fmt.Sprint(err))
		})
	}
}
