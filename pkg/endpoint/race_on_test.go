//go:build race

package endpoint_test

// The race detector makes the explorer ten times slower and finds nothing in a pure
// function; the large scenarios are explored by the run without it.
const race = true
