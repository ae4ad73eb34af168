package main

import (
	"strings"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	t.Parallel()
	var all []time.Duration
	for i := 200; i >= 1; i-- {
		all = append(all, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0.5: 100, 0.99: 198, 1: 200} {
		if got := quantile(all, q); got != want {
			t.Errorf("quantile(%v) = %d, want %d", q, got, want)
		}
	}
	if got := quantile([]time.Duration{7}, 0.5); got != 7 {
		t.Errorf("quantile of one = %d", got)
	}
}

// TestTable: promises are judged, ratios are there where both have a value, and
// a metric that makes no sense for the peer says so.
func TestTable(t *testing.T) {
	t.Parallel()
	ours, other := subject{name: holdfast}, subject{name: peer}
	b := &bench{config: config{peer: "/x", peerVersion: "v1", holdfastsWords: "h"}}
	b.times(ours, "heal", []time.Duration{10 * time.Millisecond, 60 * time.Millisecond}, "", 0.99)
	b.times(other, "heal", nil, "never", 0.99)
	b.add(ours, "binary", "MB", value(18))
	b.add(other, "binary", "MB", value(24))
	b.add(ours, "peak RSS (VmHWM) at rest", "MB", value(20))
	b.add(other, "peak RSS (VmHWM) at rest", "MB", value(20))
	b.add(ours, "dials failed, newcomer takes over", dials, (&tally{made: 9}).reading())
	b.add(other, "dials failed, newcomer takes over", dials, (&tally{made: 9, failed: 3, reasons: map[string]int{"ENOENT": 3}}).reading())
	var out strings.Builder
	b.writeTable(&out)
	for _, want := range []string{
		"heal, p50 10.0 ms (of 2) never",
		"heal, p99 60.0 ms never < 50 ms: NOT KEPT",
		"binary 18.0 MB 24.0 MB 0.75 <= 18 MB: kept",
		"peak RSS (VmHWM) at rest 20.0 MB 20.0 MB 1.00 below the incumbent's: NOT KEPT",
		"dials failed, newcomer takes over 0 of 9 3 of 9 (ENOENT) 0: kept",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}
