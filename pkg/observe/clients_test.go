package observe

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// Patience with clients ends, whatever they do.
func TestRudeClients(t *testing.T) {
	for name, text := range map[string]string{
		"says nothing":  "",
		"half a header": "GET /healthz HTTP/1.1\r\nHos",
		"half a body":   "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
		"keeps alive":   "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := runWith(t, Config{Address: "127.0.0.1:0"}, func(s *Server) { s.clientPatience = 50 * time.Millisecond })
			c := dial(t, r.listening(t))
			send(t, c, text)
			wantEOF(t, c)
		})
	}
	t.Run("does not read", func(t *testing.T) {
		r := runWith(t, Config{Address: "127.0.0.1:0"}, func(s *Server) { s.clientPatience = 50 * time.Millisecond })
		c := dial(t, r.listening(t))
		_ = c.SetWriteDeadline(time.Now().Add(patience))
		batch := strings.Repeat("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 1000)
		for { // until the answers fill every buffer and the server hangs up
			if _, err := io.WriteString(c, batch); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("the server waits for ever")
			} else if err != nil {
				return
			}
		}
	})
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func wantEOF(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection was left open")
	}
}

// Whatever clients do, Run ends.
func TestStopIsBounded(t *testing.T) {
	for name, client := range map[string]func(t *testing.T, c net.Conn, busy <-chan struct{}){
		"says nothing":  func(*testing.T, net.Conn, <-chan struct{}) {},
		"half a header": func(t *testing.T, c net.Conn, _ <-chan struct{}) { send(t, c, "GET /healthz HTTP/1.1\r\nHos") },
		"keeps alive": func(t *testing.T, c net.Conn, _ <-chan struct{}) {
			send(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		},
		"waits for health": func(t *testing.T, c net.Conn, busy <-chan struct{}) {
			send(t, c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
			<-busy
		},
		"takes a profile": func(t *testing.T, c net.Conn, _ <-chan struct{}) {
			send(t, c, "GET /debug/pprof/trace?seconds=60 HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, err := c.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			busy, goOn := make(chan struct{}), make(chan struct{})
			defer close(goOn)
			r := run(t, Config{Address: "127.0.0.1:0", Pprof: true, Health: func() error {
				close(busy)
				<-goOn
				return nil
			}})
			c := dial(t, r.listening(t))
			client(t, c, busy)
			begin := time.Now()
			r.stop()
			select {
			case err := <-r.done:
				if err != nil {
					t.Errorf("Run: %v", err)
				}
			case <-time.After(patience):
				t.Fatal("Run goes on")
			}
			if took := time.Since(begin); took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
			if _, err := net.DialTimeout("tcp", c.RemoteAddr().String(), patience); err == nil {
				t.Error("somebody still listens")
			}
			wantEOF(t, c)
		})
	}
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

// A header without end is cut off.
func TestHeaderIsBounded(t *testing.T) {
	r := run(t, Config{Address: "127.0.0.1:0"})
	c := dial(t, r.listening(t))
	send(t, c, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", maxHeader+8<<10))
	_ = c.SetReadDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(c).ReadString('\n')
	if !strings.Contains(line, "431") {
		t.Errorf("got %q, %v, want status 431", line, err)
	}
}
