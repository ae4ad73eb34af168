// Package early hears SIGTERM and SIGINT from the first milliseconds of the
// process on, long before main.
//
// Of the roughly 10 ms between exec and main, nearly all is the initialisation
// of packages of Kubernetes and gRPC, and many times that on a busy node. A
// SIGTERM in that time ends an ordinary process at once and a container, where
// it is process 1 and the kernel refuses that, with code 2. Go initialises
// packages in the order of their paths, after what they import; this one
// imports nothing but a few of the standard library, and so comes before
// google.golang.org, k8s.io and most others.
//
// It knows nothing of the time before the Go runtime runs: then process 1 does
// not hear a signal at all.
//
// Goroutines: the one in os/signal, for ever; one for each Context, which ends
// with it.
package early

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// signals has room for the one that counts. Nothing changes the variable; it
// is not in main because the point is when it is initialised.
var signals = listen()

func listen() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	return c
}

// Context is done from the first SIGTERM or SIGINT that has come since the
// process began, or when the returned function is called. Later signals have
// no effect, lest they interrupt the leaving. To be called once.
func Context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
