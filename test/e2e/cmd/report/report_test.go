package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/facts"
)

// lost and kept are one case: the old pod removes the new one's socket at 4.5.
func lost() facts.Case {
	return facts.Case{
		Name: "TestSurge", With: "peer", Ended: 20,
		Marks:   []facts.Mark{{At: 0.5, Text: "apply the DaemonSet node (x)"}, {At: 3, Text: "rollout restart of node"}, {At: 15, Text: loadStops}},
		CSINode: []facts.Change{{At: 2, Present: true}, {At: 5, Present: false}},
		Path:    []facts.Accept{{At: 1, State: "absent"}, {At: 2, State: "accepts", Pod: "node-a"}, {At: 4, State: "accepts", Pod: "node-b"}, {At: 4.5, State: "absent"}},
		Socket:  []facts.Accept{{At: 1, State: "accepts", Pod: "node-a"}, {At: 3.5, State: "accepts", Pod: "node-b"}},
		Plugins: []facts.Plugin{{Name: "node-a", Seen: 0.6, Ready: 1.5, Deleting: 4.4, Gone: 6}, {Name: "node-b", Seen: 3.1, Ready: 4.4}},
		Users: []facts.User{
			{Name: "before", Made: 2, Mounted: 2.5, Deleted: 6},
			{Name: "during-0", Made: 6}, {Name: "late", Made: 19},
		},
		Failure: []facts.Mark{{At: 7, Pod: "during-0", Text: "FailedMount"}},
	}
}

func kept() facts.Case {
	c := lost()
	c.With = "holdfast"
	c.CSINode = append(c.CSINode, facts.Change{At: 6, Present: true})
	c.Path = append(c.Path, facts.Accept{At: 4.6, State: "accepts", Pod: "node-b"})
	c.Users[0].Gone, c.Users[1].Mounted, c.Users[2].Mounted = 7, 7.5, 19.5
	return c
}

func TestVerdict(t *testing.T) {
	for _, want := range []struct {
		c      facts.Case
		driver string
		pods   []string
		good   bool
	}{
		{lost(), "driver lost after 2.0 s, still missing 15 s later", []string{"0 of 1 pods mounted", "0 of 1 pods unmounted"}, false},
		{kept(), "driver away for 1.0 s", []string{"2 of 2 pods mounted (slowest 1.5 s)", "1 of 1 pods unmounted (slowest 1.0 s)"}, true},
	} {
		driver, pods, good := verdict(want.c)
		if driver != want.driver || !slices.Equal(pods, want.pods) || good != want.good {
			t.Errorf("verdict of %s: %q, %q, %v; want %q, %q, %v", want.c.With, driver, pods, good, want.driver, want.pods, want.good)
		}
	}
}

// TestReport: the peer is above, the same facts give the same bytes, and the
// picture is well-formed.
func TestReport(t *testing.T) {
	var before []byte
	for _, order := range [][]facts.Case{{kept(), lost()}, {lost(), kept()}} {
		dir := t.TempDir()
		for _, c := range order {
			if err := c.Write(dir); err != nil {
				t.Fatal(err)
			}
		}
		if err := run([]string{dir}); err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(filepath.Join(dir, "TestSurge.svg"))
		if err != nil {
			t.Fatal(err)
		}
		if before != nil && string(now) != string(before) {
			t.Error("the same facts gave two pictures")
		}
		before = now
		text, err := os.ReadFile(filepath.Join(dir, "report.txt"))
		if err != nil || !strings.Contains(string(text), "    2.000  CSINode        has NOT the driver\n") {
			t.Errorf("report.txt: %v\n%s", err, text)
		}
	}
	svg := string(before)
	if i, j := strings.Index(svg, "Incumbent-like"), strings.Index(svg, "Holdfast"); i < 0 || j < i {
		t.Error("the peer is not above Holdfast")
	}
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestNothingToReport(t *testing.T) {
	if err := run([]string{t.TempDir()}); err == nil {
		t.Error("no facts are no error")
	}
}

// TestReadme: docs/surge.svg is the picture of the facts in testdata, which one run
// of TestSurge recorded. To renew it, copy those of a run and write the picture
// with UPDATE=1.
func TestReadme(t *testing.T) {
	cases, err := facts.Read("testdata")
	if err != nil || len(cases) != 2 {
		t.Fatalf("%d cases in testdata, %v; want 2", len(cases), err)
	}
	file := filepath.Join("..", "..", "..", "..", "docs", "surge.svg")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(picture(cases)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	now, err := os.ReadFile(file)
	if err != nil || string(now) != picture(cases) {
		t.Errorf("docs/surge.svg is not the picture of testdata (%v): UPDATE=1 go test ./cmd/report", err)
	}
}
