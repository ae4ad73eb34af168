package main

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/facts"
)

// The picture's measures, in pixels.
const (
	width    = 960.0
	plotFrom = 212.0
	plotTo   = 940.0
	rowHigh  = 27.0
	barHigh  = 15.0
	before   = 3.0 // seconds shown before zero
	longest  = 45.0
)

const style = `<style>
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:#1f2328}
.bg{fill:#fff}.panel{fill:#f6f8fa}.grid{stroke:#d1d9e0}.mark{stroke:#1f2328;stroke-dasharray:3 3}
.title{font-size:17px;font-weight:600}.head{font-size:15px;font-weight:600}text.soft{fill:#59636e}text.good,tspan.good{fill:#1a7f37}text.bad,tspan.bad{fill:#cf222e}.small{font-size:12px}
.good{fill:#1a7f37}.bad{fill:#cf222e}.open{fill:#8c959f}text.in{fill:#fff;font-size:11px;font-weight:600}
.badline{stroke:#cf222e}.late{fill:none;stroke:#1a7f37;stroke-width:2}
.p0{fill:#9a6700}.p1{fill:#0969da}.p2{fill:#8250df}.p3{fill:#bf3989}.going{fill-opacity:.45}
@media (prefers-color-scheme:dark){
text{fill:#f0f6fc}.bg{fill:#0d1117}.panel{fill:#151b23}.grid{stroke:#3d444d}.mark{stroke:#f0f6fc}text.soft{fill:#9198a1}text.good,tspan.good{fill:#3fb950}text.bad,tspan.bad{fill:#f85149}
.good{fill:#238636}.bad{fill:#da3633}.open{fill:#7d8590}text.in{fill:#fff}.badline{stroke:#f85149}.late{stroke:#3fb950}
.p0{fill:#9e6a03}.p1{fill:#1f6feb}.p2{fill:#8957e5}.p3{fill:#bf4b8a}}
</style>
`

// titles say what a case is to somebody who has not read it.
var titles = map[string]string{
	"TestSurge":            "A driver is updated with maxSurge 1: old and new pod overlap on the node",
	"TestSurgeMinReady":    "A rolling update with maxSurge 1, minReadySeconds 5",
	"TestSurgeTidy":        "A rolling update with maxSurge 1; the old driver leaves its successor's csi.sock alone",
	"TestCopy":             "A copy of the DaemonSet with the same csi.sock comes and goes",
	"TestCopyAndDelete":    "A copy of the DaemonSet with a csi.sock of its own comes and goes",
	"TestRecreate":         "The DaemonSet is deleted and made again at once; the driver is slow to stop",
	"TestRecreateSidecar":  "Deleted and made again at once; slow driver, registrar as native sidecar",
	"TestForegroundDelete": "The DaemonSet is deleted in the foreground and made again; the driver is slow to stop",
	"TestRolling":          "A rolling update without surge",
	"TestForceDelete":      "The pod is deleted by force",
	"TestKilled":           "The registrar is killed",
	"TestOutOfMemory":      "The registrar runs out of memory",
	"TestKubeletRestart":   "Kubelet restarts",
	"TestInstallUninstall": "The DaemonSet is deleted",
	"TestThreeDrivers":     "A rolling update with maxSurge 1, three drivers in one pod",
	"TestRestricted":       "A rolling update with maxSurge 1, no capabilities, 32 Mi",
	"TestMigrate/surge":    "Incumbent-like, then Holdfast, then back, with maxSurge 1",
	"TestMigrate/plain":    "Incumbent-like, then Holdfast, then back, without surge",
	"TestRollBack/plain":   "From Holdfast back to the incumbent-like registrar, without surge",
	"TestRollBack/surge":   "From Holdfast back to the incumbent-like registrar, with maxSurge 1",
	"TestRollBack/copied":  "The same after a copy of the DaemonSet has come and gone",
	"TestNodeID/surge":     "A rolling update with maxSurge 1; the node ID is the pod's name",
	"TestNodeID/copy":      "A copy of the DaemonSet comes and goes; the node ID is the pod's name",
	"TestSlowBind":         "A rolling update with maxSurge 1; the driver binds csi.sock 3 s after it removed it",
	"TestSlowBindProbed":   "The same, and csi.sock decides whether a pod is ready",

	"TestSurgeWithout/keep-endpoint":   "A rolling update with maxSurge 1, --keep-endpoint=false",
	"TestSurgeWithout/handover":        "A rolling update with maxSurge 1, --handover=announce",
	"TestRestartAfterSurge/killed":     "After a surge the new pod's registrar is killed",
	"TestRestartAfterSurge/terminated": "After a surge the new pod's registrar restarts",
	"TestNothingLeft/ending":           "The DaemonSet is deleted, twice",
	"TestNothingLeft/answering":        "The DaemonSet is deleted, twice; the driver is slow to stop",
}

type drawing struct {
	strings.Builder
	y         float64 // where the next row begins
	seconds   float64 // shown after zero
	socketToo bool    // whether csi.sock is worth a row
}

// picture draws the registrars that ran a case, one panel each.
func picture(cases []facts.Case) string {
	d := &drawing{y: 44}
	for _, c := range cases {
		d.seconds = max(d.seconds, shownUntil(c)-zero(c))
		last := acceptors(c, c.Socket)
		alive := slices.ContainsFunc(c.Plugins, func(p facts.Plugin) bool { return p.Gone == 0 })
		if alive && last[len(last)-1].what != "accepts" {
			d.socketToo = true
		}
	}
	d.seconds = min(math.Ceil(d.seconds), longest)
	for _, c := range cases {
		d.panel(c)
	}
	d.axis()
	d.legend()
	var b strings.Builder
	title := titles[cases[0].Name]
	if title == "" {
		title = cases[0].Name
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img">`+"\n", width, d.y, width, d.y)
	fmt.Fprintf(&b, "<title>%s</title>\n%s", html.EscapeString(title), style)
	fmt.Fprintf(&b, `<rect class="bg" width="%.0f" height="%.0f" rx="8"/>`+"\n", width, d.y)
	fmt.Fprintf(&b, `<text class="title" x="20" y="29">%s</text>`+"\n", html.EscapeString(title))
	b.WriteString(d.String())
	b.WriteString("</svg>\n")
	return b.String()
}

// shownUntil leaves out how the test ends.
func shownUntil(c facts.Case) float64 {
	for _, m := range c.Marks {
		if m.Text == loadStops {
			return m.At + 1
		}
	}
	return c.Ended
}

func (d *drawing) x(at float64) float64 {
	at = min(max(at, -before), d.seconds)
	return plotFrom + (at+before)/(d.seconds+before)*(plotTo-plotFrom)
}

func (d *drawing) out(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// text is words at a place; anchor is start, middle or end.
func (d *drawing) text(x, y float64, class, anchor, words string) {
	d.out(`<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, class, x, y, anchor, html.EscapeString(words))
}

func (d *drawing) panel(c facts.Case) {
	rows := float64(len(c.Plugins) + 2)
	if len(c.Users) > 0 {
		rows += 2
	}
	linked := d.socketToo && len(once(acceptors(c, c.Endpoint), "accepts")) > 0
	if d.socketToo {
		rows++
	}
	if linked {
		rows++
	}
	high := 58 + rows*rowHigh
	d.out(`<rect class="panel" x="10" y="%.1f" width="%.1f" height="%.1f" rx="6"/>`, d.y, width-20, high)
	driver, pods, good := verdict(c)
	class := map[bool]string{true: "good", false: "bad"}[good]
	name := whose(c)
	d.out(`<text class="head" x="20" y="%.1f">%s: <tspan class="%s">%s</tspan></text>`, d.y+22,
		html.EscapeString(strings.ToUpper(name[:1])+name[1:]), class, html.EscapeString(driver))
	d.text(plotTo, d.y+22, class+" small", "end", strings.Join(pods, " · "))
	top := d.y + 36
	d.y = top + 18
	z := zero(c)
	for i, p := range c.Plugins {
		d.label(called(c, i) + " pod of the driver")
		d.life(c, p, i)
	}
	d.label("registration socket is of")
	d.owners(c, c.Path, "bad")
	if d.socketToo {
		d.label("csi.sock is of")
		d.owners(c, c.Socket, map[bool]string{true: "open", false: "bad"}[linked])
	}
	if linked {
		d.label("Holdfast's symlink leads to")
		d.owners(c, c.Endpoint, "bad")
	}
	d.label("kubelet knows the driver")
	for _, s := range once(membership(c), "present") {
		if s.what != "present" && uninstalled(c, s.from) {
			continue
		}
		if s.what == "present" {
			d.bar(s.from-z, s.to-z, "good", "yes")
		} else {
			d.bar(s.from-z, s.to-z, "bad", "NO")
		}
	}
	d.y += rowHigh
	if len(c.Users) > 0 {
		d.label("new pods: mounted?")
		d.dots(mounts(c), z)
		d.label("deleted pods: unmounted?")
		d.dots(unmounts(c), z)
	}
	d.marks(c, top+8, d.y-6)
	d.y += 16
}

// shorter makes marks fit.
var shorter = strings.NewReplacer("the DaemonSet ", "", " of node", "",
	"localhost/holdfast/registrar:e2e", "Holdfast", "localhost/holdfast/peer:e2e", "incumbent-like")

// marks says what the test did, and when.
func (d *drawing) marks(c facts.Case, top, bottom float64) {
	free := 0.0
	for _, m := range c.Marks {
		at := m.At - zero(c)
		if at < 0 || at > d.seconds || m.Text == loadStops {
			continue
		}
		x := d.x(at)
		words := m.Text
		words = shorter.Replace(words)
		for _, rest := range []string{" (", " what has ", " until it"} {
			words, _, _ = strings.Cut(words, rest)
		}
		d.out(`<line class="mark" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x, x, top-10, bottom)
		if x > free {
			d.text(x+4, top, "small", "start", words)
			free = x + 7*float64(len(words))
		}
	}
}

// called is what the i-th pod is: by its DaemonSet if there are two, else by age.
func called(c facts.Case, i int) string {
	n := len(c.Plugins)
	set := func(p facts.Plugin) string { return p.Name[:max(0, strings.LastIndex(p.Name, "-"))] }
	switch {
	case slices.ContainsFunc(c.Plugins, func(p facts.Plugin) bool { return set(p) != set(c.Plugins[0]) }) && n == 2:
		return []string{"first", set(c.Plugins[i])}[min(i, 1)]
	case n == 1:
		return "the"
	case i == 0:
		return "old"
	case n == 2:
		return "new"
	}
	return fmt.Sprintf("%d.", i+1)
}

func (d *drawing) label(words string) { d.text(plotFrom-10, d.y+12.5, "", "end", words) }

// life is a pod's row.
func (d *drawing) life(c facts.Case, p facts.Plugin, i int) {
	z, class := zero(c), paint(i)
	end := c.Ended
	if p.Gone > 0 {
		end = p.Gone
	}
	stops := end
	if p.Deleting > 0 {
		stops = p.Deleting
	}
	from := p.Seen
	if p.Ready > 0 {
		d.bar(p.Seen-z, p.Ready-z, class+" going", "")
		from = p.Ready
	}
	d.bar(from-z, stops-z, class, "runs")
	d.bar(stops-z, end-z, class+" going", "stops")
	d.y += rowHigh
}

func paint(i int) string { return fmt.Sprintf("p%d", i%4) }

// owners is a socket's row; nobody is how bad it is that nobody accepts.
func (d *drawing) owners(c facts.Case, changes []facts.Accept, nobody string) {
	for _, s := range once(acceptors(c, changes), "accepts") {
		from, to := s.from-zero(c), s.to-zero(c)
		if s.what != "accepts" && uninstalled(c, s.from) {
			continue
		}
		if s.what != "accepts" {
			d.bar(from, to, nobody, "nobody")
			continue
		}
		class, words := "open", ""
		for i, p := range c.Plugins {
			if p.Name == s.pod {
				class, words = paint(i), called(c, i)
			}
		}
		d.bar(from, to, class, words)
	}
	d.y += rowHigh
}

// bar is a stretch of a row, and words in it if there is room.
func (d *drawing) bar(from, to float64, class, words string) {
	if to <= -before || from >= d.seconds || to <= from {
		return
	}
	x, end := d.x(from), d.x(to)
	wide := max(end-x, 1.5)
	d.out(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, class, x, d.y, wide, barHigh)
	if words != "" && wide > 8*float64(len(words))+6 {
		d.text(x+wide/2, d.y+11.5, "in", "middle", words)
	}
}

// dots are a row of pods: a filled circle went well, a ring did late, a cross did not
// by the end.
func (d *drawing) dots(all []fate, z float64) {
	y := d.y + barHigh/2
	for _, f := range all {
		if f.at-z < -before || f.at-z > d.seconds {
			continue
		}
		d.dot(d.x(f.at-z), y, f.outcome)
	}
	d.y += rowHigh
}

func (d *drawing) dot(x, y float64, outcome string) {
	if outcome == "bad" {
		d.out(`<path class="badline" stroke-width="2.6" d="M%.1f %.1fl10 10m0 -10l-10 10"/>`, x-5, y-5)
		return
	}
	if outcome == "late" {
		d.out(`<circle class="late" cx="%.1f" cy="%.1f" r="4.2"/>`, x, y)
		return
	}
	d.out(`<circle class="%s" cx="%.1f" cy="%.1f" r="5.2"/>`, outcome, x, y)
}

func (d *drawing) axis() {
	step := 5.0
	if d.seconds < 12 {
		step = 2
	}
	for s := 0.0; s <= d.seconds; s += step {
		d.text(d.x(s), d.y+8, "soft small", "middle", fmt.Sprintf("%.0f s", s))
	}
	d.y += 26
}

func (d *drawing) legend() {
	y := d.y + 2
	d.dot(plotFrom+5, y-4, "good")
	d.text(plotFrom+17, y, "soft small", "start", "done")
	d.dot(plotFrom+65, y-4, "late")
	d.text(plotFrom+77, y, "soft small", "start", fmt.Sprintf("done after over %.0f s", late))
	d.dot(plotFrom+220, y-4, "bad")
	d.text(plotFrom+232, y, "soft small", "start", "not done when the test ended")
	d.text(plotTo, y, "soft small", "end", "each second one pod is made and one deleted")
	d.y += 16
}
