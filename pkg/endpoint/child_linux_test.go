package endpoint

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// childMain obeys one command a line and answers each with one line: "ok", the
// name of a sentinel and the words of the error, or what it has seen.
func childMain(socket string, in io.Reader, out io.Writer) int {
	n, err := NewNames(socket)
	if err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if path, ok := strings.CutPrefix(lines.Text(), "in "); ok {
			n, err = NewNames(path)
			fmt.Fprintln(out, outcome(err))
			continue
		}
		fmt.Fprintln(out, childDo(n, lines.Text()))
	}
	return 0
}

func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	words := strings.ReplaceAll(err.Error(), "\n", " ")
	for name, sentinel := range map[string]error{
		"changed": ErrChanged, "foreign": ErrForeign, "no links": ErrNoLinks, "gone": ErrDirGone,
	} {
		if errors.Is(err, sentinel) {
			return name + ": " + words
		}
	}
	return words
}

func childDo(n *Names, command string) string {
	l, err := n.Read()
	if err != nil {
		return outcome(err)
	}
	switch command {
	case "pin":
		err = n.Pin(l.Socket)
	case "turn":
		err = n.Turn(l.Link, Target{Kind: ToSocket})
	case "remove":
		err = n.Remove(l.Others[0])
	case "probe":
		return n.Probe(ID{}).String()
	case "probe other":
		return n.Probe(l.Others[0]).String()
	case "dial":
		conn, err := n.Dial(context.Background(), ID{})
		if err == nil {
			_ = conn.Close()
		}
		return outcome(err)
	case "uncapable":
		// Of this thread only; the test binary's child has no other that acts.
		runtime.LockOSThread()
		var none [2]unix.CapUserData
		err = unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
	case "chroot":
		if err = unix.Chroot(filepath.Dir(n.Path(ID{}))); err == nil {
			err = unix.Chdir("/")
		}
	default:
		return "unknown command"
	}
	return outcome(err)
}

// child is another process.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startChild(t *testing.T, socket string, with ...func(*exec.Cmd)) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+socket)
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
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

func (c *child) ask(t *testing.T, command string) string {
	t.Helper()
	_, err := fmt.Fprintln(c.in, command)
	check(t, err)
	line, err := c.out.ReadString('\n')
	check(t, err)
	return strings.TrimSuffix(line, "\n")
}

// must wants each of the words in the answer.
func (c *child) must(t *testing.T, command string, want ...string) {
	t.Helper()
	got := c.ask(t, command)
	for _, words := range want {
		if !strings.Contains(got, words) {
			t.Errorf("child: %s: got %q, want %q", command, got, words)
		}
	}
}

// shortDir is t.TempDir with a path that leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ep")
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newNames(t *testing.T, dir string) *Names {
	t.Helper()
	n, err := NewNames(filepath.Join(dir, "csi.sock"))
	check(t, err)
	return n
}

// at calls do whenever step is reached.
func at(n *Names, step string, do func()) {
	n.seams.at = func(reached string) {
		if reached == step {
			do()
		}
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
	slices.Sort(want)
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Fatalf("the directory holds %q, want %q", got, want)
	}
}
