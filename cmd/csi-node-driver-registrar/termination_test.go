package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTerminationLog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "termination-log")
	if err := writeTerminationLog(name, "why"); err == nil {
		t.Error("written although there is no such file")
	}
	if _, err := os.Lstat(name); !os.IsNotExist(err) {
		t.Errorf("the file was made: %v", err)
	}
	if err := os.WriteFile(name, []byte("what an earlier start left there"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{"why", strings.Repeat("ä", longestTermination)} {
		if err := writeTerminationLog(name, reason); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if want := reason[:min(len(reason), longestTermination)]; string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if err := writeTerminationLog(t.TempDir(), "why"); err == nil {
		t.Error("a directory was taken for a termination log")
	}
}

func TestTerminationLogBehindALink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	if err := writeTerminationLog(link, "why"); err == nil {
		t.Error("the link was followed")
	}
	if got, _ := os.ReadFile(target); string(got) != "precious" {
		t.Errorf("the target now holds %q", got)
	}
}

func TestShorten(t *testing.T) {
	for n := range 8 {
		got := shorten("aäßb", n)
		if len(got) > n || !utf8.ValidString(got) || !strings.HasPrefix("aäßb", got) || len(got) < min(n, 6)-1 {
			t.Errorf("%d: %q", n, got)
		}
	}
}
