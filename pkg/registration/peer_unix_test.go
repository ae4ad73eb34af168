//go:build unix

package registration

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helper is this test binary in a process of its own.
type helper struct {
	cmd *exec.Cmd
}

func startHelper(t *testing.T, mode, path string) *helper {
	t.Helper()
	cmd := exec.Command(os.Args[0], path)
	cmd.Env = append(os.Environ(), helperEnv+"="+mode)
	cmd.Stderr = os.Stderr
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
	h := &helper{cmd: cmd}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if strings.TrimSpace(line) != "ready" {
		t.Fatalf("helper %s: %q, %v", mode, line, err)
	}
	return h
}

func (h *helper) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := h.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	if s == syscall.SIGSTOP {
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(h.cmd.Process.Pid, &ws, syscall.WUNTRACED, nil); err != nil || !ws.Stopped() {
			t.Fatalf("not stopped: %v, %v", ws, err)
		}
	}
}

func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// A frozen process accepts connections, as far as connect(2) can tell.
func TestAskAFrozenServer(t *testing.T) {
	path := socketPath(t)
	h := startHelper(t, "serve", path)
	p := must(Ask(t.Context(), dialer(path), true))
	defer p.Close()
	h.signal(t, syscall.SIGSTOP)
	frozen, err := Ask(short(t), dialer(path), true)
	wantNoAnswer(t, frozen, err)
	if closed(p.Gone()) {
		t.Error("a frozen peer's connection has ended")
	}
	h.signal(t, syscall.SIGCONT)
	again := must(Ask(t.Context(), dialer(path), false))
	again.Close()
	if closed(p.Gone()) {
		t.Error("a thawed peer's connection has ended")
	}
	h.signal(t, syscall.SIGKILL)
	awaitClosed(t, "the killed peer is gone", p.Gone())
}

// Closing a connection to a frozen process takes no time.
func TestCloseAFrozenServer(t *testing.T) {
	path := socketPath(t)
	h := startHelper(t, "serve", path)
	p := must(Ask(t.Context(), dialer(path), true))
	h.signal(t, syscall.SIGSTOP)
	begin := time.Now()
	p.Close()
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// A frozen peer holds on; a dead one does not.
func TestFrozenPeerStaysCounted(t *testing.T) {
	r := start(t, nil)
	h := startHelper(t, "hold", r.path)
	if n := r.Peers(); n != 1 {
		t.Fatalf("%d peers, want 1", n)
	}
	h.signal(t, syscall.SIGSTOP)
	r.wantsNoMore(t) // the server answers others meanwhile
	if n := r.Peers(); n != 1 {
		t.Errorf("%d peers with a frozen one, want 1", n)
	}
	h.signal(t, syscall.SIGKILL)
	eventually(t, "the dead peer is forgotten", func() bool { return r.Peers() == 0 })
}

// Nor does a frozen peer keep Stop.
func TestStopWithAFrozenPeer(t *testing.T) {
	r := start(t, nil)
	h := startHelper(t, "hold", r.path)
	h.signal(t, syscall.SIGSTOP)
	begin := time.Now()
	r.Stop()
	if err := <-r.served; err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > speechPatience/2 {
		t.Errorf("Serve returned %v after Stop", took)
	}
}

// And Drain takes no longer than it may.
func TestDrainWithAFrozenPeer(t *testing.T) {
	r := start(t, nil)
	h := startHelper(t, "hold", r.path)
	h.signal(t, syscall.SIGSTOP)
	done := make(chan struct{})
	go func() { r.Drain(short(t)); close(done) }()
	awaitClosed(t, "Drain returned", done)
	if err := <-r.served; err != nil {
		t.Error(err)
	}
}

// What connect(2) says comes through.
func TestAskWrapsTheErrno(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(t *testing.T, path string)
		want syscall.Errno
	}{
		"absent":       {func(*testing.T, string) {}, syscall.ENOENT},
		"nobody":       {bindOnly, syscall.ECONNREFUSED},
		"dead":         {abandon, syscall.ECONNREFUSED},
		"full backlog": {fillBacklog, syscall.EAGAIN},
	} {
		t.Run(name, func(t *testing.T) {
			path := socketPath(t)
			tt.make(t, path)
			p, err := Ask(short(t), dialer(path), true)
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, %v, want %v", p, err, tt.want)
			}
			if errors.Is(err, ErrNoAnswer) || errors.Is(err, ErrForeign) {
				t.Errorf("%v reads as an answered dial", err)
			}
		})
	}
}

// bindOnly binds and does not listen.
func bindOnly(t *testing.T, path string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
}

// abandon leaves a socket without a process.
func abandon(t *testing.T, path string) {
	t.Helper()
	l := listen(t, path).(*net.UnixListener)
	l.SetUnlinkOnClose(false)
	_ = l.Close()
}

// fillBacklog listens, accepts nothing, and takes every place in the queue.
func fillBacklog(t *testing.T, path string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	for {
		c, err := dialer(path)(t.Context())
		if errors.Is(err, syscall.EAGAIN) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}
