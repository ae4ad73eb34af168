package csidriver

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	long, dir, n := strings.Repeat("a", 63), t.TempDir(), 0
	for name, ok := range map[string]bool{
		"csi.example.com":       true,
		"CSI.Example.com":       true,
		"a":                     true,
		"7":                     true,
		"a-b":                   true,
		"a--b.c":                true,
		long:                    true,
		long + "a":              false,
		"":                      false,
		"-a":                    false,
		"a-":                    false,
		".a":                    false,
		"a.":                    false,
		"a..b":                  false,
		"a.-b":                  false,
		"a-.b":                  false,
		"a_b":                   false,
		"a/b":                   false,
		"../../etc/passwd":      false,
		"a b":                   false,
		"a\x00b":                false,
		"dö":                    false,
		"csi.example.com\n":     false,
		"https://csi.example.x": false,
	} {
		t.Run(name, func(t *testing.T) {
			n++
			path := filepath.Join(dir, strconv.Itoa(n)) // the name may be too long for a path
			serve(t, path, &identity{name: name})
			d := driver(t, path, patience)
			got, err := d.Name(t.Context())
			if ok {
				if err != nil || got != name {
					t.Errorf("Name = %q, %v", got, err)
				}
				return
			}
			wantTrouble(t, d, err, BadName)
			if strings.ContainsAny(err.Error(), "\n\x00") {
				t.Errorf("the name is quoted raw: %q", err)
			}
		})
	}
}
