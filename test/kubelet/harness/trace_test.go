package harness

import (
	"strings"
	"testing"
	"time"
)

func TestTrace(t *testing.T) {
	t.Parallel()
	tr := newTrace()
	at := func(s int) time.Time { return tr.began.Add(time.Duration(s) * time.Second) }
	if !tr.last("a", "b").Equal(tr.began) {
		t.Error("last of nothing is not the beginning")
	}
	changed := tr.changed()
	tr.add(at(2), "a", "second %d", 2)
	tr.add(at(1), "b", "first")
	tr.add(at(3), "a", "third")
	select {
	case <-changed:
	default:
		t.Error("a record woke nobody")
	}
	if got := tr.Since(at(2), "a"); len(got) != 2 || got[0].Text != "second 2" {
		t.Errorf("Since = %v", got)
	}
	if got := tr.Since(at(3), "a"); len(got) != 1 || got[0].Text != "third" {
		t.Errorf("Since = %v", got)
	}
	if got := tr.last("a", "b"); !got.Equal(at(3)) {
		t.Errorf("last = %v", got)
	}
	s := tr.String(2)
	if !strings.Contains(s, "1 older") || strings.Contains(s, "first") || strings.Index(s, "second 2") > strings.Index(s, "third") {
		t.Errorf("String(2) = %s", s)
	}
	for range keepRecords + 1 {
		tr.add(at(4), "a", "many")
	}
	if got := len(tr.Since(at(0), "a")); got > keepRecords {
		t.Errorf("%d records kept, want at most %d", got, keepRecords)
	}
}
