//go:build !windows

package early

import (
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContext(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		// Before there is a context, as if it had come before main.
		if err := syscall.Kill(syscall.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		ctx, stop := Context()
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Second):
			t.Fatalf("%v was not heard", sig)
		}
		stop()
	}
	ctx, stop := Context()
	if err := ctx.Err(); err != nil {
		t.Errorf("done without a signal: %v", err)
	}
	stop()
	<-ctx.Done()
}
