package main

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestBounded(t *testing.T) {
	why := errors.New("why")
	if err := bounded(t.Context(), time.Hour, func() error { return why }); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := bounded(done, time.Hour, func() error { return why }); !errors.Is(err, why) {
		t.Errorf("after the signal: got %v", err)
	}
	never := make(chan struct{})
	defer close(never)
	if err := bounded(done, time.Millisecond, func() error { <-never; return why }); err != nil {
		t.Errorf("one that does not return: got %v", err)
	}
}
