package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/facts"
)

// timeline writes a case as lines in order of time. Zero is when the case did what
// it is about.
func timeline(w io.Writer, c facts.Case) {
	driver, pods, _ := verdict(c)
	fmt.Fprintf(w, "%s, %s\n  %s\n", c.Name, whose(c), strings.Join(append([]string{driver}, pods...), "; "))
	if c.Failed {
		fmt.Fprintln(w, "  THE TEST FAILED")
	}
	type line struct {
		at        float64
		who, text string
	}
	var all []line
	add := func(at float64, who, format string, args ...any) {
		if at > 0 {
			all = append(all, line{at, who, fmt.Sprintf(format, args...)})
		}
	}
	for _, m := range c.Marks {
		add(m.At, "---", "%s", m.Text)
	}
	for _, m := range c.CSINode {
		add(m.At, "CSINode", "%s", map[bool]string{true: "has the driver", false: "has NOT the driver"}[m.Present])
	}
	for _, a := range c.Path {
		add(a.At, "path", "%s %s", a.State, a.Pod)
	}
	for _, a := range c.Socket {
		add(a.At, "csi.sock", "%s %s", a.State, a.Pod)
	}
	for _, a := range c.Endpoint {
		add(a.At, ".csi.sock.ep", "%s %s", a.State, a.Pod)
	}
	for _, p := range c.Plugins {
		add(p.Seen, p.Name, "is seen")
		add(p.Ready, p.Name, "is ready")
		add(p.Deleting, p.Name, "is being deleted")
		add(p.Gone, p.Name, "is gone")
	}
	for _, u := range c.Users {
		add(u.Made, u.Name, "made")
		add(u.Mounted, u.Name, "mounted after %.1f s", u.Mounted-u.Made)
		add(u.Deleted, u.Name, "deleted")
		add(u.Gone, u.Name, "gone after %.1f s", u.Gone-u.Deleted)
	}
	for _, f := range c.Failure {
		add(f.At, f.Pod, "! %s", f.Text)
	}
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	for _, l := range all {
		fmt.Fprintf(w, "%9.3f  %-14s %s\n", l.at-zero(c), l.who, strings.TrimSpace(l.text))
	}
	fmt.Fprintln(w)
}

// whose is what a registrar is called.
func whose(c facts.Case) string {
	switch {
	case slices.ContainsFunc(c.Marks, func(m facts.Mark) bool { return strings.HasPrefix(m.Text, "set image") }):
		return "both"
	case c.With == "peer":
		return "incumbent-like registrar"
	default:
		return "Holdfast"
	}
}
