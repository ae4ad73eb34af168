package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Kind says which program a process runs.
type Kind string

// The programs. Ours and Incumbent are registrars; Kubelet and Driver say of
// themselves when they are ready, see Node.StartKubelet and Plugin.StartDriver.
const (
	Ours      Kind = "ours"
	Incumbent Kind = "incumbent"
	Driver    Kind = "driver"
	Kubelet   Kind = "kubelet"
)

// Proc is one process on a Node.
type Proc struct {
	Name    string // such as "ours-2": unique on its node
	Kind    Kind
	Started time.Time

	node *Node
	cmd  *exec.Cmd
	done chan struct{} // closed when it ended and its output was read

	mu       sync.Mutex
	frozen   bool
	awaited  bool // a test waited for its end, or wants it dead
	told     time.Time
	ended    time.Time
	endError error
}

// start runs a program; ready to be signalled when it returns.
func (n *Node) start(kind Kind, argv []string, line func(string)) *Proc {
	n.tb.Helper()
	n.mu.Lock()
	n.count[kind]++
	p := &Proc{Name: fmt.Sprintf("%s-%d", kind, n.count[kind]), Kind: kind, node: n, done: make(chan struct{})}
	n.mu.Unlock()

	p.cmd = exec.Command(argv[0], argv[1:]...)
	// The race detector sleeps a second at the end unless told not to.
	p.cmd.Env = append(os.Environ(), "GORACE=halt_on_error=1 atexit_sleep_ms=0")
	// Nothing outlives the test binary, however that ends.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		p.cmd.Stderr = nil
		var stderr io.ReadCloser
		if stderr, err = p.cmd.StderrPipe(); err == nil {
			p.Started = time.Now()
			err = p.cmd.Start()
			if err == nil {
				n.Trace.add(p.Started, p.Name, "starts as pid %d: %s", p.PID(), strings.Join(argv, " "))
				go p.follow(stdout, stderr, line)
			}
		}
	}
	if err != nil {
		n.tb.Fatalf("start %s: %v", p.Name, err)
	}
	n.mu.Lock()
	n.procs = append(n.procs, p)
	n.mu.Unlock()
	return p
}

// follow reads the output to its end and then waits for the process's.
func (p *Proc) follow(stdout, stderr io.Reader, line func(string)) {
	var reading sync.WaitGroup
	reading.Go(func() {
		p.eachLine(stdout, func(s string) {
			if line != nil {
				line(s)
				return
			}
			p.say(s)
		})
	})
	reading.Go(func() { p.eachLine(stderr, p.say) })
	reading.Wait()
	err := p.cmd.Wait()
	now := time.Now()
	p.mu.Lock()
	p.ended, p.endError = now, err
	p.mu.Unlock()
	close(p.done)
	p.node.Trace.add(now, p.Name, "ended: %s", p.cmd.ProcessState)
}

func (p *Proc) eachLine(r io.Reader, do func(string)) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		do(lines.Text())
	}
}

func (p *Proc) say(s string) {
	p.node.Trace.add(time.Now(), p.Name, "| %s", s)
	for _, bad := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if strings.Contains(s, bad) {
			p.node.complain("%s says: %s", p.Name, s)
		}
	}
}

// PID is the process's number.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Running reports whether it has not ended yet.
func (p *Proc) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Lines is what the process said so far.
func (p *Proc) Lines() []string {
	var lines []string
	for _, r := range p.node.Trace.Since(p.Started, p.Name) {
		if line, ok := strings.CutPrefix(r.Text, "| "); ok {
			lines = append(lines, line)
		}
	}
	return lines
}

// Said counts the lines with this text in what the process said so far.
func (p *Proc) Said(text string) int {
	count := 0
	for _, line := range p.Lines() {
		if strings.Contains(line, text) {
			count++
		}
	}
	return count
}

// AwaitSaid waits for a line with this text.
func (p *Proc) AwaitSaid(text string, within time.Duration) {
	p.node.tb.Helper()
	p.node.Await(fmt.Sprintf("%s to say %q", p.Name, text), within, func() bool {
		return p.Said(text) > 0 || !p.Running()
	})
	if p.Said(text) == 0 {
		p.node.Fatalf("%s ended without saying %q", p.Name, text)
	}
}

// Signal sends a signal.
func (p *Proc) Signal(sig syscall.Signal) {
	p.node.tb.Helper()
	p.node.Trace.add(time.Now(), p.Name, "gets %v", sig)
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.node.Fatalf("signal %s: %v", p.Name, err)
	}
}

// Freeze stops the process where it is, and returns once it stands still.
func (p *Proc) Freeze() {
	p.node.tb.Helper()
	p.mu.Lock()
	p.frozen = true
	p.mu.Unlock()
	p.Signal(syscall.SIGSTOP)
	p.node.Await(p.Name+" to stand still", 5*time.Second, func() bool {
		return p.state() == 'T' || !p.Running()
	})
}

// Thaw lets it go on.
func (p *Proc) Thaw() {
	p.node.tb.Helper()
	p.mu.Lock()
	p.frozen = false
	p.mu.Unlock()
	p.Signal(syscall.SIGCONT)
}

// Frozen reports whether Freeze was called, and Thaw not since.
func (p *Proc) Frozen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen
}

// Status is a field of /proc/PID/status, empty if there is none.
func (p *Proc) Status(field string) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && name == field {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// state is the third field of /proc/PID/stat.
func (p *Proc) state() byte {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0
	}
	if i := strings.LastIndexByte(string(data), ')'); i > 0 && i+2 < len(data) {
		return data[i+2]
	}
	return 0
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Proc) Kill() {
	p.node.tb.Helper()
	p.expectEnd()
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Terminate sends SIGTERM, waits for the end, wants exit 0 (of a registrar of
// ours within exitLimit), and says how long it took.
func (p *Proc) Terminate() time.Duration {
	p.node.tb.Helper()
	began := p.SendTerm()
	return p.AwaitTerm(began)
}

// SendTerm sends SIGTERM, without waiting; AwaitTerm takes the answer.
func (p *Proc) SendTerm() (sent time.Time) {
	p.node.tb.Helper()
	p.expectEnd()
	began := time.Now()
	p.Signal(syscall.SIGTERM)
	return began
}

// exitLimit is what I8 promises from SIGTERM to exit, a second, and as much again
// for the processor on a busy machine: make bench measures how long it really takes.
const exitLimit = 2 * time.Second

// AwaitTerm is the second half of Terminate.
func (p *Proc) AwaitTerm(sent time.Time) time.Duration {
	p.node.tb.Helper()
	code := p.AwaitExit(10 * time.Second)
	took := p.Ended().Sub(sent)
	if code != 0 {
		p.node.Errorf("%s: exit %d after SIGTERM, want 0", p.Name, code)
	}
	if p.Kind == Ours && took >= exitLimit {
		p.node.Errorf("%s: %v from SIGTERM to exit, want under %v", p.Name, took.Round(time.Millisecond), exitLimit)
	}
	return took
}

// AwaitExit waits for the end and gives the exit code, -1 after a signal.
func (p *Proc) AwaitExit(within time.Duration) int {
	p.node.tb.Helper()
	p.expectEnd()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		p.node.Fatalf("%s did not end within %v", p.Name, within)
		return -1
	}
}

func (p *Proc) expectEnd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaited = true
	if p.told.IsZero() {
		p.told = time.Now()
	}
}

// Ended is when the process ended; now, if it has not.
func (p *Proc) Ended() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended.IsZero() {
		return time.Now()
	}
	return p.ended
}

// ToldToEnd is when the test first wanted the process to end; now, if it has not.
func (p *Proc) ToldToEnd() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told.IsZero() {
		return time.Now()
	}
	return p.told
}

// reap kills what still runs and complains about an end that nobody wanted.
func (p *Proc) reap() {
	p.mu.Lock()
	awaited := p.awaited
	p.mu.Unlock()
	if p.Running() {
		_ = p.cmd.Process.Kill()
		<-p.done
		return
	}
	if !awaited {
		p.node.tb.Errorf("%s ended by itself: %s", p.Name, p.cmd.ProcessState)
	}
}
