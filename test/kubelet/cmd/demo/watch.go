package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// lookEvery is how often the path is looked at.
const lookEvery = 3 * time.Millisecond

// sight is who answered at the path from a moment on.
type sight struct {
	at  time.Time
	who string // a pod, or why there was nobody
	pid int    // of who answered; 0 when nobody did
}

// stage watches one node and prints each change as it happens.
type stage struct {
	*harness.Node
	stop, stopped chan struct{}

	mu       sync.Mutex
	pods     map[int]string // by process
	sights   []sight        // one for each change
	step     time.Time      // when the present step began
	in       bool           // the CSINode, as last printed
	reported time.Time      // of the newest change of the CSINode that was printed
}

// newStage makes a node with kubelet and a driver, and begins to watch.
func newStage(tb testing.TB, bin harness.Binaries) *stage {
	s := &stage{Node: harness.New(tb, bin), stop: make(chan struct{}), stopped: make(chan struct{}), pods: map[int]string{}}
	s.StartKubelet()
	s.StartDriver()
	s.step = time.Now()
	s.reported = s.step
	s.sights = []sight{{at: s.step, who: "nobody (no such file)"}}
	fmt.Print("kubelet and the CSI driver run; no registrar yet\n")
	go s.watch()
	tb.Cleanup(func() { close(s.stop); <-s.stopped })
	return s
}

func (s *stage) watch() {
	defer close(s.stopped)
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		s.saw(s.Look())
		select {
		case <-s.stop:
			return
		case <-again.C:
		}
	}
}

// saw takes in one look, and what the CSINode did meanwhile.
func (s *stage) saw(look harness.Sight) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.Trace.Since(s.reported, "csinode") {
		if r.At.After(s.reported) {
			s.reported = r.At
			if in := strings.Contains(r.Text, s.Driver); in != s.in {
				s.in = in
				s.print(r.At, "kubelet", s.sights[len(s.sights)-1].who)
			}
		}
	}
	next := sight{at: now, who: s.pods[look.PID], pid: look.PID}
	if !look.Answered() {
		next = sight{at: now, who: "nobody (" + reason(look.Err) + ")"}
	}
	if last := s.sights[len(s.sights)-1]; next.who != last.who {
		s.sights = append(s.sights, next)
		s.print(now, "path", next.who)
	}
}

// print writes one line of the timeline. It is called with the lock held.
func (s *stage) print(at time.Time, what, who string) {
	csinode := dim("driver is not there")
	if s.in {
		csinode = green("has the driver")
	}
	line := fmt.Sprintf("%8d ms  %-8s %-28s", at.Sub(s.step).Milliseconds(), what, who)
	fmt.Printf("%s CSINode %s\n", line, csinode)
}

// reason is why nobody answered, in two words.
func reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return strings.TrimSuffix(errno.Error(), " or directory")
	}
	return "no answer"
}

// catchUp prints what happened and was not yet printed.
func (s *stage) catchUp() { s.saw(s.Look()) }

// begin opens a step of the story with one line.
func (s *stage) begin(format string, args ...any) {
	s.catchUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Printf("\n%s %s\n", bold("▶"), bold(fmt.Sprintf(format, args...)))
	s.step = time.Now()
}

// start starts a pod's registrar.
func (s *stage) start(kind harness.Kind, pod string) *harness.Proc {
	p := s.Start(kind)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[p.PID()] = pod
	return p
}

// answers reports whether this process answered at the path when last looked at.
func (s *stage) answers(p *harness.Proc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sights[len(s.sights)-1].pid == p.PID()
}

// since gives who answered from a moment on; the first is who answered then.
func (s *stage) since(from time.Time) []sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := 0
	for i, x := range s.sights {
		if !x.at.After(from) {
			first = i
		}
	}
	return append([]sight(nil), s.sights[first:]...)
}

// colour is for people at a terminal.
var colour = isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func paint(code, s string) string {
	if !colour {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func bold(s string) string  { return paint("1", s) }
func dim(s string) string   { return paint("2", s) }
func green(s string) string { return paint("32", s) }
func red(s string) string   { return paint("31", s) }
