package main

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// lastCall is how long after SIGTERM the process ends whatever is still under way.
// The registrar itself takes at most 800 ms to leave; what may take longer is closing
// thousands of connections that others have left open.
const lastCall = 900 * time.Millisecond

// bounded returns what run returns, or nil when ctx has been done for as long as
// patience and run has not returned.
func bounded(ctx context.Context, patience time.Duration, run func() error) error {
	returned := make(chan error, 1)
	go func() { returned <- run() }()
	select {
	case err := <-returned:
		return err
	case <-ctx.Done():
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case err := <-returned:
		return err
	case <-t.C:
		klog.InfoS("Ending with connections still open", "after", patience)
		return nil
	}
}
