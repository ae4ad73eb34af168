package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
)

// Run runs f outside of go test: for programs that show or measure what the
// tests prove. f gets a testing.TB with the methods that this package needs. Run
// returns when f and its cleanups did, or, when ctx ends, after the cleanups
// alone; then the process should end as well. The error is ctx's, or all that
// went wrong; then it names a file with the trace.
func Run(ctx context.Context, f func(testing.TB)) error {
	p := &program{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(p)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		p.interrupt()
		p.clean()
		return ctx.Err()
	}
	p.clean()
	return errors.Join(p.failures()...)
}

// program is the testing.TB of Run. Safe for concurrent use.
type program struct {
	testing.TB // nil; it has the unexported method, and panics for what is missing below

	mu          sync.Mutex
	failed      []error
	cleanups    []func()
	interrupted bool // what goes wrong from here on is no news
}

func (p *program) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.interrupted {
		p.failed = append(p.failed, err)
	}
}

func (p *program) interrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interrupted = true
}

func (p *program) failures() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

func (p *program) clean() {
	for {
		p.mu.Lock()
		last := len(p.cleanups) - 1
		if last < 0 {
			p.mu.Unlock()
			return
		}
		do := p.cleanups[last]
		p.cleanups = p.cleanups[:last]
		p.mu.Unlock()
		do()
	}
}

// Cleanup, Helper and the rest are those of testing.TB.
func (p *program) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

func (p *program) Helper()                           {}
func (p *program) Failed() bool                      { return len(p.failures()) > 0 }
func (p *program) Error(args ...any)                 { p.fail(errors.New(fmt.Sprint(args...))) }
func (p *program) Errorf(format string, args ...any) { p.fail(fmt.Errorf(format, args...)) }

func (p *program) Fatal(args ...any) {
	p.Error(args...)
	runtime.Goexit()
}

func (p *program) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	runtime.Goexit()
}

// Log keeps what a test would print in a file: it is long.
func (p *program) Log(args ...any) {
	f, err := os.CreateTemp("", "holdfast-trace-*.log")
	if err == nil {
		_, err = fmt.Fprintln(f, args...)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		p.fail(fmt.Errorf("keep the trace: %w", err))
		return
	}
	p.fail(fmt.Errorf("what was seen is in %s", f.Name()))
}
