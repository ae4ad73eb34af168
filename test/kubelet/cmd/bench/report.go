package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// dials is the unit of what the hammer counts. There is no ratio of it, since the
// numbers of dials differ.
const dials = "dials"

// metric is one line of the result.
type metric struct {
	Name     string   `json:"name"`
	Unit     string   `json:"unit"`
	Holdfast *reading `json:"holdfast,omitempty"`
	Peer     *reading `json:"peer,omitempty"`
	// Ratio is Holdfast's value by the peer's, where both have one.
	Ratio *float64 `json:"ratio,omitempty"`
	// Promise is what the value must not exceed, in words; Kept says whether it
	// did not.
	Promise string `json:"promise,omitempty"`
	Kept    *bool  `json:"kept,omitempty"`
}

// reading is what was measured of one subject.
type reading struct {
	Value *float64 `json:"value,omitempty"` // nil if there is none
	Words string   `json:"words,omitempty"` // why there is no value, or what belongs to it
}

// promise is an upper limit for Holdfast.
type promise struct {
	limit float64
	below bool // and not at it
	words string
}

// promises are those of the project, by metric.
var promises = map[string]promise{
	"heal, p99":                                      {50, true, "< 50 ms"},
	"dials failed, newcomer takes over":              {0, false, "0"},
	"SIGTERM to exit, alone, max":                    {50, true, "< 50 ms"},
	"SIGTERM to exit, of a standby, max":             {1000, true, "< 1 s"},
	"SIGTERM to exit, of the acceptor, max":          {1000, true, "< 1 s"},
	"SIGTERM to exit, beside a frozen acceptor, max": {1000, true, "< 1 s"},
	"SIGTERM to exit, beside a frozen standby, max":  {1000, true, "< 1 s"},
	"RssAnon at rest":                                {6, false, "<= 6 MB"},
	"RssAnon at rest, standing by":                   {6, false, "<= 6 MB"},
	"binary":                                         {18, false, "<= 18 MB"},
}

// belowPeer are the metrics in which Holdfast promises less than the incumbent.
var belowPeer = []string{"peak RSS (VmHWM) at rest"}

// report collects readings.
type report struct{ metrics []*metric }

// add notes a reading, in the order of first mention.
func (r *report) add(s subject, name, unit string, v reading) {
	i := slices.IndexFunc(r.metrics, func(m *metric) bool { return m.Name == name })
	if i < 0 {
		i = len(r.metrics)
		r.metrics = append(r.metrics, &metric{Name: name, Unit: unit})
	}
	m := r.metrics[i]
	if s.name == peer {
		m.Peer = &v
	} else {
		m.Holdfast = &v
	}
}

func value(v float64) reading { return reading{Value: &v} }
func words(format string, args ...any) reading {
	return reading{Words: fmt.Sprintf(format, args...)}
}

// times adds quantiles of some durations, or in words why there are none.
func (r *report) times(s subject, name string, all []time.Duration, none string, quantiles ...float64) {
	for i, q := range append([]float64{0.5}, append(quantiles, 1)...) {
		v := reading{Words: none}
		if len(all) > 0 {
			v = value(float64(quantile(all, q)) / float64(time.Millisecond))
			if i == 0 {
				v.Words = fmt.Sprintf("(of %d)", len(all))
			}
		}
		label := "max"
		if q < 1 {
			label = fmt.Sprintf("p%.0f", 100*q)
		}
		r.add(s, name+", "+label, "ms", v)
	}
}

// quantile is the smallest of all that is not smaller than a fraction q of them.
func quantile[T cmp.Ordered](all []T, q float64) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// judge fills in ratios and promises.
func (r *report) judge() {
	for _, m := range r.metrics {
		if m.Holdfast == nil || m.Holdfast.Value == nil {
			continue
		}
		v := *m.Holdfast.Value
		if m.Unit != dials && m.Peer != nil && m.Peer.Value != nil && *m.Peer.Value > 0 {
			ratio := v / *m.Peer.Value
			m.Ratio = &ratio
			if slices.Contains(belowPeer, m.Name) {
				kept := ratio < 1
				m.Promise, m.Kept = "below the incumbent's", &kept
			}
		}
		if p, ok := promises[m.Name]; ok {
			kept := v < p.limit || !p.below && v == p.limit
			m.Promise, m.Kept = p.words, &kept
		}
	}
}

func (b *bench) writeJSON(w io.Writer) error {
	b.judge()
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(struct {
		Holdfast string    `json:"holdfast"`
		Peer     string    `json:"peer,omitempty"`
		Machine  string    `json:"machine"`
		Metrics  []*metric `json:"metrics"`
	}{b.holdfastsWords, b.peerVersion, b.machine(), b.metrics})
}

func (b *bench) writeTable(w io.Writer) {
	b.judge()
	fmt.Fprintf(w, "\nHoldfast  %s\n", b.holdfastsWords)
	if b.peer != "" {
		fmt.Fprintf(w, "peer      %s\n", b.peerVersion)
	}
	fmt.Fprintf(w, "machine   %s\n\n", b.machine())
	const row = "%-48s %-26s"
	line := func(name, ours, other, ratio, promised string) {
		s := fmt.Sprintf(row, name, ours)
		if b.peer != "" {
			s += fmt.Sprintf(" %-32s %-6s", other, ratio)
		}
		fmt.Fprintln(w, strings.TrimRight(s+" "+promised, " "))
	}
	line("", "Holdfast", "peer", "ratio", "promise")
	for _, m := range b.metrics {
		ratio, promised := "", ""
		if m.Ratio != nil {
			ratio = fmt.Sprintf("%.2f", *m.Ratio)
		}
		if m.Kept != nil {
			promised = m.Promise + map[bool]string{true: ": kept", false: ": NOT KEPT"}[*m.Kept]
		}
		line(m.Name, m.Holdfast.in(m.Unit), m.Peer.in(m.Unit), ratio, promised)
	}
}

// machine says how busy the machine was, since a busy one makes figures worse.
func (b *bench) machine() string {
	return fmt.Sprintf("%d processors; load (1, 5, 15 min) %s before, %s after", runtime.NumCPU(), b.loadBefore, load())
}

func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 3 {
		return "unknown"
	}
	return strings.Join(fields[:3], " ")
}

// in is a reading as the table shows it.
func (v *reading) in(unit string) string {
	switch {
	case v == nil:
		return ""
	case v.Value == nil:
		return v.Words
	}
	s := fmt.Sprintf("%.1f %s", *v.Value, unit)
	if unit == "" || unit == dials {
		s = fmt.Sprintf("%.0f", *v.Value)
	}
	if v.Words != "" {
		s += " " + v.Words
	}
	return s
}
