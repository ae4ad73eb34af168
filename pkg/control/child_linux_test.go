package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childMain obeys one command a line and answers each with one line.
func childMain(dir string) int {
	p, err := New(dir, driver)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	c := &childState{p: p}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		answer, err := c.do(command, argument)
		if err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(answer)
	}
	return 0
}

type childState struct {
	p *Place
	l *Listener
	c *Conn
}

func (s *childState) do(command, argument string) (answer string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	answer = "ok"
	switch command {
	case "listen":
		if s.l, err = s.p.Listen(os.Getpid()); err == nil {
			answer = s.l.Name()
		}
	case "accept":
		var hello Hello
		s.c, hello, err = s.l.Accept(ctx)
		answer = hello.Instance
	case "dial":
		s.c, err = s.p.Dial(ctx, argument)
	case "hello":
		err = s.c.Send(ctx, Hello{Instance: argument})
	case "news":
		n, _ := strconv.Atoi(argument)
		for range n {
			err = errors.Join(err, s.c.Send(ctx, News{}))
		}
	case "receive":
		var frame Frame
		frame, _, err = s.c.Receive(ctx)
		answer = fmt.Sprintf("%T", frame)
	case "raw": // Says a proper Hello without looking who listens.
		var conn net.Conn
		if conn, err = net.Dial("unix", argument); err == nil {
			hello, _ := encode(Hello{Instance: "raw"})
			_, _ = conn.Write(hello)
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			answer = fmt.Sprint(ended(conn))
		}
	case "setuid":
		id, _ := strconv.Atoi(argument)
		err = syscall.Setuid(id)
	default:
		err = errors.New("unknown command")
	}
	return answer, err
}

// ended reads until the end, and reports whether that is what it was, rather than
// that time was up.
func ended(conn net.Conn) bool {
	_, err := io.Copy(io.Discard, conn)
	return err == nil || errors.Is(err, syscall.ECONNRESET)
}

// child is another process.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startChild(t *testing.T, dir string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = os.Stderr
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

// freeze returns once the child has stopped: the signal alone does not wait.
func (c *child) freeze(t *testing.T) {
	t.Helper()
	check(t, c.cmd.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	_, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	check(t, err)
	if !status.Stopped() {
		t.Fatalf("not stopped: %v", status)
	}
}

func (c *child) ask(t *testing.T, command string) string {
	t.Helper()
	_, err := fmt.Fprintln(c.in, command)
	check(t, err)
	line, err := c.out.ReadString('\n')
	check(t, err)
	return strings.TrimSuffix(line, "\n")
}

func (c *child) must(t *testing.T, command, want string) {
	t.Helper()
	if got := c.ask(t, command); got != want {
		t.Fatalf("child: %s: got %q, want %q", command, got, want)
	}
}
