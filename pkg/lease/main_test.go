package lease

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childEnv makes the test binary another holder of the lease at its value.
const childEnv = "HOLDFAST_LEASE_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		os.Exit(childMain(path, os.Stdin, os.Stdout))
	}
	goleak.VerifyTestMain(m)
}

// childMain obeys one command a line and answers each with one line: "ok",
// "held", "replaced", or the words of another error.
func childMain(path string, in io.Reader, out io.Writer) int {
	l, err := New(path)
	if err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		wait, _ := time.ParseDuration(argument)
		fmt.Fprintln(out, outcome(childDo(l, command, wait)))
	}
	return 0
}

func childDo(l *Lease, command string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	switch command {
	case "join":
		return l.Join(ctx)
	case "exclusive":
		return l.TryExclusive()
	case "leave": // Asks again and again, as an instance that leaves does.
		for {
			err := l.TryExclusive()
			if !errors.Is(err, ErrHeld) || ctx.Err() != nil {
				return err
			}
		}
	case "drop":
		l.Drop()
		return nil
	case "remove":
		return l.Remove()
	}
	return errors.New("unknown command")
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrHeld):
		return "held"
	case errors.Is(err, ErrReplaced):
		return "replaced"
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

// child is another process that holds, or does not hold, the lease.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startChild(t *testing.T, path string, with ...func(*exec.Cmd)) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	cmd.Stderr = os.Stderr
	for _, change := range with {
		change(cmd)
	}
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	c := &child{cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(c.kill)
	return c
}

// kill ends the child, frozen or not, and waits until it has ended.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func (c *child) send(t *testing.T, command string) {
	t.Helper()
	_, err := fmt.Fprintln(c.in, command)
	check(t, err)
}

func (c *child) receive(t *testing.T) string {
	t.Helper()
	line, err := c.out.ReadString('\n')
	check(t, err)
	return strings.TrimSuffix(line, "\n")
}

func (c *child) must(t *testing.T, command, want string) {
	t.Helper()
	c.send(t, command)
	if got := c.receive(t); got != want {
		t.Fatalf("child: %s: got %q, want %q", command, got, want)
	}
}

func newLease(t *testing.T, path string) *Lease {
	t.Helper()
	l, err := New(path)
	check(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// now is a ctx that is done: Join tries exactly once.
func now() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// soon is a ctx for what must happen, only when the machine is busy not at once.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

func wantHeld(t *testing.T, l *Lease, want bool) {
	t.Helper()
	if got := l.Held(); got != want {
		t.Fatalf("held: got %v, want %v", got, want)
	}
}

// wantLocked says what somebody else who asks for path exclusively must find.
func wantLocked(t *testing.T, path string, want bool) {
	t.Helper()
	other := newLease(t, path)
	defer other.Close()
	err := other.TryExclusive()
	if want {
		wantErr(t, err, ErrHeld)
		return
	}
	check(t, err)
}
