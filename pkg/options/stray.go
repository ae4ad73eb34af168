package options

import (
	"fmt"
	"strings"
)

// stray is a word that is no flag and no flag's value. The flag package stops
// reading there, as it does in the incumbent, and so everything after it is
// lost without a word: "--enable-pprof true --http-endpoint=:8080" has no
// HTTP server.
type stray struct {
	word    string   // the first word that was not read; empty: there is none
	ignored []string // the flags among what was not read, as given
	boolean string   // the boolean flag just before word, or empty
}

// stray returns what the flag package left unread.
func (g *given) stray(args []string) stray {
	rest := g.fs.Args()
	if len(rest) == 0 {
		return stray{}
	}
	s := stray{word: rest[0]}
	for _, a := range rest {
		if len(a) > 1 && a[0] == '-' && a != "--" {
			s.ignored = append(s.ignored, a)
		}
	}
	if read := args[:len(args)-len(rest)]; len(read) > 0 {
		s.boolean = g.boolean(read[len(read)-1])
	}
	return s
}

// boolean returns the name of the boolean flag that arg is, or nothing.
func (g *given) boolean(arg string) string {
	name := strings.TrimLeft(arg, "-")
	f := g.fs.Lookup(name)
	if f == nil || name == arg {
		return ""
	}
	if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
		return name
	}
	return ""
}

// warnings names the word and every flag after it, in one sentence.
func (s stray) warnings() []string {
	if s.word == "" {
		return nil
	}
	w := fmt.Sprintf("%q is not a flag, and ended the reading of flags", s.word)
	if len(s.ignored) > 0 {
		w += "; ignored: " + strings.Join(s.ignored, " ")
	}
	if s.boolean != "" {
		w += fmt.Sprintf(" (a boolean flag takes its value with an equal sign: --%s=%s)", s.boolean, s.word)
	}
	return []string{w}
}

// excuse says that the named flag was given, but where nobody reads it.
func (s stray) excuse(name string) string {
	for _, a := range s.ignored {
		got, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if got == name {
			return fmt.Sprintf(" (it was given after %q, which is not a flag and ended the reading of flags)", s.word)
		}
	}
	return ""
}
