package endpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// childEnv makes the test binary another process that looks after the socket at
// its value.
const childEnv = "HOLDFAST_ENDPOINT_CHILD"

func TestMain(m *testing.M) {
	if socket := os.Getenv(childEnv); socket != "" {
		os.Exit(childMain(socket, os.Stdin, os.Stdout))
	}
	goleak.VerifyTestMain(m)
}

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
