package options

import "testing"

func TestPredicates(t *testing.T) {
	for s, want := range map[string]bool{
		"a:": true, "z:": true, "A:": true, "Z:": true, `C:\x`: true,
		"": false, "c": false, "`:": false, "{:": false, "@:": false, "[:": false, "1:": false, "ab:": false, "é:": false,
	} {
		if got := isDrive(s); got != want {
			t.Errorf("isDrive(%q) = %t", s, got)
		}
	}
	for s, want := range map[string]bool{"0": true, "1239": true, "": false, "12a": false, "-1": false} {
		if got := isDigits(s); got != want {
			t.Errorf("isDigits(%q) = %t", s, got)
		}
	}
	for i := range 256 {
		b := byte(i)
		want := false
		for _, known := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") {
			want = want || known == b
		}
		if got := isLetterOrDigit(b); got != want {
			t.Errorf("isLetterOrDigit(%q) = %t", b, got)
		}
	}
}

func TestRooted(t *testing.T) {
	for _, test := range []struct {
		on   platform
		name string
		want bool
	}{
		{onLinux, "/x", true}, {onLinux, "/", true}, {onLinux, "x", false}, {onLinux, "", false}, {onLinux, `\x`, false}, {onLinux, `C:\x`, false},
		{onWindows, "/x", true}, {onWindows, `\x`, true}, {onWindows, `C:\`, true}, {onWindows, "C:/x", true},
		{onWindows, "C:x", false}, {onWindows, "C:", false}, {onWindows, "x", false}, {onWindows, "", false},
	} {
		if got := test.on.rooted(test.name); got != test.want {
			t.Errorf("rooted(%q) = %t", test.name, got)
		}
	}
}
