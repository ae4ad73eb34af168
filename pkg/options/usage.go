package options

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

// usage writes the flags and their defaults. Flags that are only accepted are
// listed by name, so that nobody starts to use them.
func (g *given) usage(w io.Writer) {
	shown := flag.NewFlagSet(programName, flag.ContinueOnError)
	shown.SetOutput(w)
	var accepted []string
	g.fs.VisitAll(func(f *flag.Flag) {
		if isIgnored(f) {
			accepted = append(accepted, "--"+f.Name)
			return
		}
		shown.Var(f.Value, f.Name, f.Usage)
		shown.Lookup(f.Name).DefValue = f.DefValue // not the value that was given
	})
	fmt.Fprintf(w, "Usage of %s:\n", programName)
	shown.PrintDefaults()
	fmt.Fprintf(w, "Accepted for older manifests, without effect: %s\n", strings.Join(accepted, ", "))
}

// explain puts a parse error of the flag package into a sentence with the next
// step. The flag package has no error types; the prefix is stable since Go 1.
func (g *given) explain(err error) string {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return err.Error() + " (see --help)"
	}
	near := g.nearest(name)
	switch {
	case near == nil:
		return fmt.Sprintf("unknown flag --%s (see --help)", name)
	case isIgnored(near):
		return fmt.Sprintf("unknown flag --%s: is --%s meant? That one no longer has an effect; leave it out", name, near.Name)
	}
	return fmt.Sprintf("unknown flag --%s: is --%s meant?", name, near.Name)
}

// nearest returns the flag that was probably meant, or nil. It takes the fewest
// edits, of at most a third of the name's length, or of any number if one name
// is part of the other.
func (g *given) nearest(name string) *flag.Flag {
	const shortestPart = 4
	name = fold(name)
	var best *flag.Flag
	bestEdits := 0
	g.fs.VisitAll(func(f *flag.Flag) {
		known := fold(f.Name)
		edits := distance(name, known)
		part := min(len(name), len(known)) >= shortestPart && (strings.Contains(known, name) || strings.Contains(name, known))
		if edits > len(name)/3 && !part {
			return
		}
		if best == nil || edits < bestEdits {
			best, bestEdits = f, edits
		}
	})
	return best
}

func fold(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, "_", "-"))
}

// distance counts the insertions, deletions, substitutions and swaps of
// neighbours that make b of a (optimal string alignment), byte by byte.
func distance(a, b string) int {
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			substitution := last[j-1]
			if a[i-1] != b[j-1] {
				substitution++
			}
			row[j] = min(last[j]+1, row[j-1]+1, substitution)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
