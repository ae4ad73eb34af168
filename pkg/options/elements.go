package options

import "strings"

// Paths are not cleaned with path/filepath: it would follow this build's
// platform only, turn every slash of a Windows path around, and take x/.. away
// although x may be a symbolic link.

// collapse takes repeated separators, "." elements and separators at the end
// away. It warns about //, which is what an empty variable or two joined
// directories leave; doubled backslashes are what YAML and Helm make of an
// escaped path in most Windows manifests, and say nothing.
func (p platform) collapse(c *checked, flagName, name string) string {
	var b strings.Builder
	rest, pending := name, "" // pending is the separator before the next element
	if p.windows && strings.HasPrefix(name, `\\`) {
		pending = `\\` // of \\server\share or \\?\C:\dir, also with more of them
	}
	for rest != "" {
		n := p.separators(rest)
		if n > 0 && pending == "" {
			pending = rest[:1]
		}
		rest = rest[n:]
		n = p.element(rest)
		switch element := rest[:n]; {
		case element == "." && b.Len() == 0 && pending == "":
			n += p.separators(rest[n:]) // "./x" is not "/x"
		case element != "." && element != "":
			b.WriteString(pending + element)
			pending = ""
		}
		rest = rest[n:]
	}
	result := b.String()
	switch {
	case result == "" && pending == "":
		result = "."
	case result == "", p.windows && len(result) == 2 && isDrive(result):
		result += pending // the root
	}
	if strings.Contains(name, "//") {
		c.warn("%s=%s contains //; taken as %s", flagName, name, result)
	}
	return result
}

// split returns the elements of a path.
func (p platform) split(name string) []string {
	return strings.FieldsFunc(name, func(r rune) bool { return r < 0x80 && p.isSeparator(byte(r)) })
}

// separators counts those at the beginning of s.
func (p platform) separators(s string) int {
	for i := range len(s) {
		if !p.isSeparator(s[i]) {
			return i
		}
	}
	return len(s)
}

// element is the length of the path element at the beginning of s.
func (p platform) element(s string) int {
	for i := range len(s) {
		if p.isSeparator(s[i]) {
			return i
		}
	}
	return len(s)
}

// rooted says that a path does not depend on the working directory, or on
// Windows at most on its drive.
func (p platform) rooted(name string) bool {
	return name != "" && (p.isSeparator(name[0]) || p.windows && len(name) > 2 && isDrive(name) && p.isSeparator(name[2]))
}

func (p platform) separator() string {
	if p.windows {
		return `\`
	}
	return "/"
}

func (p platform) isSeparator(b byte) bool {
	return b == '/' || p.windows && b == '\\'
}

// isDrive says that s begins with a drive, such as C:.
func isDrive(s string) bool {
	return len(s) > 1 && s[1] == ':' && (s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z')
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func isLetterOrDigit(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
}
