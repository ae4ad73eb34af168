//go:build unix

package csidriver

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
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// helperEnv names what the re-executed test binary does instead of testing.
const helperEnv = "HOLDFAST_TEST_HELPER"

// nobody is a user without rights.
const nobody = 65534

func helper() bool {
	switch os.Getenv(helperEnv) {
	case "serve": // a driver at os.Args[1], until stdin ends
		l, err := net.Listen("unix", os.Args[1])
		helperCheck(err)
		s := grpc.NewServer()
		csi.RegisterIdentityServer(s, identity{name: "csi.example.com"})
		go func() { helperCheck(s.Serve(l)) }()
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "ask-as-nobody": // ask the driver at os.Args[1] as an ordinary user
		if os.Getuid() == 0 {
			helperCheck(syscall.Setgroups(nil))
			helperCheck(syscall.Setgid(nobody))
			helperCheck(syscall.Setuid(nobody))
		}
		d, err := New(Config{Address: os.Args[1], Timeout: patience})
		helperCheck(err)
		name, err := d.Name(context.Background())
		var tr *Trouble
		if errors.As(err, &tr) {
			fmt.Printf("%v: %v\n", tr.Reason, err)
		} else {
			fmt.Printf("%q, %v\n", name, err)
		}
	default:
		return false
	}
	return true
}

func helperCheck(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func helperCommand(mode, path string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], path)
	cmd.Env = append(os.Environ(), helperEnv+"="+mode)
	cmd.Stderr = os.Stderr
	return cmd
}

// A frozen driver accepts connections, as far as connect(2) can tell.
func TestFrozenDriver(t *testing.T) {
	path := socketPath(t)
	cmd := helperCommand("serve", path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "ready" {
		t.Fatalf("helper: %q, %v", line, err)
	}
	if name, err := driver(t, path, patience).Name(t.Context()); err != nil {
		t.Fatalf("Name = %q, %v", name, err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &ws, syscall.WUNTRACED, nil); err != nil || !ws.Stopped() {
		t.Fatalf("not stopped: %v, %v", ws, err)
	}
	d := driver(t, path, 100*time.Millisecond)
	begin := time.Now()
	_, err = d.Name(t.Context())
	wantTrouble(t, d, err, NoAnswer, "no answer")
	if took := time.Since(begin); took > 3*time.Second { // grpc's own goodbye may take 5 s
		t.Errorf("it took %v", took)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if name, err := driver(t, path, patience).Name(t.Context()); err != nil {
		t.Errorf("thawed: Name = %q, %v", name, err)
	}
}

// What an ordinary user may not reach is denied, which says nothing of what is
// there: neither a socket nor a directory without permission reads as absent.
func TestDenied(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: the helper asks as this user")
	}
	for name, closeIt := range map[string]func(dir, path string) error{
		"socket":    func(_, path string) error { return os.Chmod(path, 0) },
		"directory": func(dir, _ string) error { return os.Chmod(dir, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			top, err := os.MkdirTemp("", "csidriver")
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(top, "d")
			t.Cleanup(func() { _ = os.Chmod(dir, 0o700); _ = os.RemoveAll(top) })
			for _, mk := range []func() error{
				func() error { return os.Chmod(top, 0o755) },
				func() error { return os.Mkdir(dir, 0o755) },
			} {
				if err := mk(); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(dir, "csi.sock")
			serve(t, path, &identity{name: "csi.example.com"})
			if err := closeIt(dir, path); err != nil {
				t.Fatal(err)
			}
			out, err := helperCommand("ask-as-nobody", path).Output()
			if err != nil {
				t.Fatalf("helper: %v: %s", err, out)
			}
			for _, w := range []string{"denied: ", path, "permission denied", "SELinux"} {
				if !strings.Contains(string(out), w) {
					t.Errorf("%q does not say %q", out, w)
				}
			}
		})
	}
}

func TestFullBacklog(t *testing.T) {
	path := socketPath(t)
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	d := driver(t, path, patience)
	_, err = d.Name(t.Context())
	wantTrouble(t, d, err, NobodyListens) // bound, not listening yet

	if err := syscall.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	for {
		c, err := net.Dial("unix", path)
		if errors.Is(err, syscall.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	_, err = d.Name(t.Context())
	wantTrouble(t, d, err, NoAnswer, "queue of connections", "full")
}

func TestDatagramSocket(t *testing.T) {
	path := socketPath(t)
	c, err := net.ListenPacket("unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	d := driver(t, path, patience)
	_, err = d.Name(t.Context())
	wantTrouble(t, d, err, NotASocket, "not a stream socket")
}

func TestDanglingSymlink(t *testing.T) {
	path := socketPath(t)
	if err := os.Symlink("nowhere", path); err != nil {
		t.Fatal(err)
	}
	d := driver(t, path, patience)
	_, err := d.Name(t.Context())
	wantTrouble(t, d, err, NoFile, "no such file")
}

func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	for path, tt := range map[string]struct {
		reason Reason
		words  string
	}{
		pipe:                         {NotASocket, "a named pipe"},
		"/dev/null":                  {NotASocket, "a device"},
		loop:                         {Other, "too many levels of symbolic links"},
		filepath.Join(pipe, "below"): {Other, "not a directory"},
	} {
		d := driver(t, path, patience)
		_, err := d.Name(t.Context())
		wantTrouble(t, d, err, tt.reason, tt.words)
	}
}
