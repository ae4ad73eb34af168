package control

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct{ dir, driver, says string }{
		{"", driver, "no directory"},
		{"/registration", "", "no driver name"},
		{"/registration", "../x", "cannot be part of a file name"},
		{"/registration", `a\b`, "cannot be part of a file name"},
		{"/registration", "a\x00b", "cannot be part of a file name"},
		{"/a\x00b", driver, "cannot be part of a file name"},
	} {
		if _, err := New(c.dir, c.driver); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q, %q: %v", c.dir, c.driver, err)
		}
	}
}

func TestNames(t *testing.T) {
	p, err := New("/registration/", driver)
	check(t, err)
	name := p.name(4026531841, 1)
	if want := ".hostpath.csi.k8s.io-reg.4026531841.1.ctl"; name != want {
		t.Fatalf("got %s, want %s", name, want)
	}
	if got, want := p.path(name), filepath.FromSlash("/registration/"+name); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	const start = "." + driver + "-reg."
	for name, want := range map[string]bool{
		name:                                 true,
		start + "18446744073709551615.1.ctl": true,
		start + "18446744073709551616.1.ctl": false,
		start + "1.2.ctl":                    true,
		start + "1.2.ct":                     false,
		start + "1.2":                        false,
		start + "12.ctl":                     false,
		start + ".2.ctl":                     false,
		start + "1..ctl":                     false,
		start + "0.2.ctl":                    false,
		start + "01.2.ctl":                   false,
		start + "1.02.ctl":                   false,
		start + "+1.2.ctl":                   false,
		start + "1.-2.ctl":                   false,
		start + "1.2.3.ctl":                  false,
		start + "1. 2.ctl":                   false,
		start + "1.2a.ctl":                   false,
		start + "1.2.ctl/":                   false,
		start + "1.2/../x.ctl":               false,
		start + "0123abcd.tmp":               false,
		start + "x-reg.1.2.ctl":              false,
		start[1:] + "1.2.ctl":                false,
		"../" + start + "1.2.ctl":            false,
		"/" + start + "1.2.ctl":              false,
		".other-reg.1.2.ctl":                 false,
		"":                                   false,
	} {
		if got := p.isName(name); got != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}
