package main

import (
	"runtime/debug"
	"testing"
)

func TestBoundHeap(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	for _, test := range []struct {
		env  string
		want int
	}{{"", 50}, {"100", 100}, {"off", 100}} {
		t.Setenv("GOGC", test.env)
		debug.SetGCPercent(100)
		boundHeap()
		if got := debug.SetGCPercent(100); got != test.want {
			t.Errorf("GOGC=%q: %d, want %d", test.env, got, test.want)
		}
	}
}
