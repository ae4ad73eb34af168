package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/facts"
)

// pending is how long before the end something may have begun without that its
// lack of an end says anything.
const pending = 3.0

// late is how many seconds a pod may take to mount or to go; longer is drawn as late.
const late = 5.0

const loadStops = "the load stops"

// zero is when the case did what it is about: the first mark after the DaemonSet
// was there.
func zero(c facts.Case) float64 {
	if len(c.Marks) > 1 {
		return c.Marks[1].At
	}
	return 0
}

// span is a stretch of time in one state.
type span struct {
	from, to float64
	what     string
	pod      string
}

// membership is CSINode as spans, present or missing, from 0 to the end.
func membership(c facts.Case) []span {
	all := []span{{0, c.Ended, "missing", ""}}
	for _, m := range c.CSINode {
		what := "missing"
		if m.Present {
			what = "present"
		}
		all = next(all, span{m.At, c.Ended, what, ""})
	}
	return all
}

// acceptors are a socket's states as spans: accepts, refuses or absent.
func acceptors(c facts.Case, changes []facts.Accept) []span {
	all := []span{{0, c.Ended, "absent", ""}}
	for _, a := range changes {
		all = next(all, span{a.At, c.Ended, a.State, a.Pod})
	}
	return all
}

// once leaves out what was before a state first was there: a driver that is being
// installed is not missing.
func once(all []span, what string) []span {
	for i, s := range all {
		if s.what == what {
			return all[i:]
		}
	}
	return nil
}

func next(all []span, s span) []span {
	if last := &all[len(all)-1]; s.from <= last.from {
		all = all[:len(all)-1]
	} else {
		last.to = s.from
	}
	return append(all, s)
}

// fate is what came of mounting or unmounting one pod's volume.
type fate struct {
	at, took float64
	pod      string
	outcome  string // good, late, bad, open
}

func fates(c facts.Case, begin, end func(facts.User) float64) (all []fate) {
	for _, u := range c.Users {
		f := fate{at: begin(u), pod: u.Name, outcome: "good"}
		switch {
		case f.at == 0:
			continue
		case end(u) > 0:
			if f.took = end(u) - f.at; f.took > late {
				f.outcome = "late"
			}
		case f.at > c.Ended-pending:
			f.outcome = "open"
		default:
			f.outcome, f.took = "bad", c.Ended-f.at
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b fate) int {
		if a.at != b.at {
			if a.at < b.at {
				return -1
			}
			return 1
		}
		return strings.Compare(a.pod, b.pod)
	})
	return all
}

func mounts(c facts.Case) []fate {
	return fates(c, func(u facts.User) float64 { return u.Made }, func(u facts.User) float64 { return u.Mounted })
}

func unmounts(c facts.Case) []fate {
	return fates(c, func(u facts.User) float64 { return u.Deleted }, func(u facts.User) float64 { return u.Gone })
}

// tally counts those that began at or after a time.
type tally struct {
	good, bad int
	worst     float64
}

func count(all []fate, since float64) (t tally) {
	for _, f := range all {
		switch {
		case f.at < since || f.outcome == "open":
		case f.outcome == "good", f.outcome == "late":
			t.good++
			t.worst = max(t.worst, f.took)
		default:
			t.bad++
		}
	}
	return t
}

func (t tally) say(verb string) string {
	if t.good+t.bad == 0 {
		return ""
	}
	s := fmt.Sprintf("%d of %d pods %s", t.good, t.good+t.bad, verb)
	if t.bad == 0 {
		s += fmt.Sprintf(" (slowest %.1f s)", t.worst)
	}
	return s
}

// uninstalled says whether the test had deleted every DaemonSet by a time, and made
// none again.
func uninstalled(c facts.Case, at float64) bool {
	sets := 0
	for _, m := range c.Marks {
		switch {
		case strings.HasPrefix(m.Text, "apply the DaemonSet"):
			sets++
		case strings.HasPrefix(m.Text, "delete the DaemonSet") && m.At <= at:
			sets--
		}
	}
	return sets == 0
}

// verdict is the case in words, and whether nothing is wrong at its end.
func verdict(c facts.Case) (driver string, pods []string, good bool) {
	since := zero(c)
	total, times := 0.0, 0
	var last span
	for _, s := range membership(c) {
		if s.what == "missing" && uninstalled(c, s.from) {
			last = span{what: "left"}
			break
		}
		if s.what == "missing" && s.to > since {
			total += s.to - max(s.from, since)
			times++
		}
		last = s
	}
	switch {
	case last.what == "missing":
		driver = fmt.Sprintf("driver lost after %.1f s, still missing %.0f s later", max(0, last.from-since), c.Ended-max(since, last.from))
	case times == 0:
		driver = "driver never lost"
	case times == 1:
		driver = fmt.Sprintf("driver away for %.1f s", total)
	default:
		driver = fmt.Sprintf("driver away %d times, %.1f s in all", times, total)
	}
	m, u := count(mounts(c), since), count(unmounts(c), since)
	for _, s := range []string{m.say("mounted"), u.say("unmounted")} {
		if s != "" {
			pods = append(pods, s)
		}
	}
	if last.what == "present" && m.bad+u.bad > 0 {
		driver += ", but pods fail"
	}
	return driver, pods, last.what != "missing" && m.bad+u.bad == 0
}
