package regsocket

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const driver = "hostpath.csi.k8s.io"

// childEnv makes the test binary another instance with its value as directory.
const childEnv = "HOLDFAST_REGSOCKET_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(childMain(dir, os.Stdin, os.Stdout))
	}
	goleak.VerifyTestMain(m)
}

// childMain obeys one command a line and answers each with one line: "ok", the
// name of a sentinel, or the words of another error.
func childMain(dir string, in io.Reader, out io.Writer) int {
	p, err := New(dir, driver)
	if err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	var s *Socket
	var spares childSpares
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		switch command {
		case "bind":
			s, err = p.Bind()
		case "publish":
			err = p.Publish(s, ID{})
		case "close":
			err = s.Close()
		case "dial":
			var conn net.Conn
			if conn, err = p.Dial(context.Background()); err == nil {
				_ = conn.Close()
			}
			fmt.Fprintln(out, ClassifyDial(err))
			continue
		case "chroot":
			if err = childChroot(dir); err == nil {
				p, err = New("/", driver)
			}
		case "in":
			p, err = New(argument, driver)
		default:
			err = spares.do(p, command, argument)
		}
		fmt.Fprintln(out, outcome(err))
	}
	return 0
}

func outcome(err error) string {
	for name, sentinel := range map[string]error{
		"ok": nil, "exists": ErrExists, "changed": ErrChanged, "absent": ErrAbsent, "gone": ErrDirGone,
	} {
		if errors.Is(err, sentinel) {
			return name
		}
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

// child is another process with a registration socket.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startChild(t *testing.T, dir string, with ...func(*exec.Cmd)) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
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

// shortDir is t.TempDir with a path that leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "reg")
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newPlace(t *testing.T, dir string) *Place {
	t.Helper()
	p, err := New(dir, driver)
	check(t, err)
	return p
}

func bind(t *testing.T, p *Place) *Socket {
	t.Helper()
	s, err := p.Bind()
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// published is a new socket at the path, which was absent.
func published(t *testing.T, p *Place) *Socket {
	t.Helper()
	s := bind(t, p)
	check(t, p.Publish(s, ID{}))
	return s
}

// at calls do whenever step is reached.
func at(p *Place, step string, do func()) {
	p.seams.at = func(reached string) {
		if reached == step {
			do()
		}
	}
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

func wantWords(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, words := range want {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got error %v, want it to say %q", err, words)
		}
	}
}

func wantDial(t *testing.T, path string, want Dialed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := dial(ctx, path)
	if err == nil {
		_ = conn.Close()
	}
	if got := ClassifyDial(err); got != want {
		t.Fatalf("connect to %s: got %v (%v), want %v", filepath.Base(path), got, err, want)
	}
}

func wantMine(t *testing.T, p *Place, s *Socket, want bool) {
	t.Helper()
	mine, _, err := p.Mine(s)
	check(t, err)
	if mine != want {
		t.Fatalf("mine: got %v, want %v", mine, want)
	}
}

func stat(t *testing.T, p *Place) ID {
	t.Helper()
	id, err := p.Stat()
	check(t, err)
	return id
}

func wantAbsent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is still there (%v)", filepath.Base(path), err)
	}
}

// wantOnly says which names stand in the directory.
func wantOnly(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("the directory holds %q, want %q", got, want)
	}
}
