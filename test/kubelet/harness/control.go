package harness

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// The kinds of frames on a control socket, as every release has them.
const (
	FrameHello     = 1
	FramePublish   = 2
	FrameReady     = 3
	FrameIsReady   = 4
	FrameHandover  = 5
	FrameAccepting = 6
	FrameNews      = 7
	FrameYielded   = 9
)

// Frame is one frame: a header of eight bytes, "hf", 1, the kind and the length of the
// body, which is JSON.
func Frame(kind byte, body any) []byte {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	head := binary.BigEndian.AppendUint32([]byte{'h', 'f', 1, kind}, uint32(len(data)))
	return append(head, data...)
}

// Control is the test's end of a connection to or from a control socket.
type Control struct {
	*net.UnixConn
	File *os.File // the descriptor that came last
}

// Receive gives the next frame's kind and body. A descriptor that comes with it is in
// File.
func (c *Control) Receive(within time.Duration) (kind byte, body map[string]any, err error) {
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return 0, nil, err
	}
	head, space := make([]byte, 8), make([]byte, syscall.CmsgSpace(4))
	got, rights, _, _, err := c.ReadMsgUnix(head, space)
	if err == nil && got == 0 {
		err = io.EOF
	}
	if err == nil {
		err = c.keep(space[:rights])
	}
	if err == nil {
		_, err = io.ReadFull(c, head[got:])
	}
	if err != nil {
		return 0, nil, err
	}
	data := make([]byte, binary.BigEndian.Uint32(head[4:]))
	if _, err := io.ReadFull(c, data); err != nil {
		return 0, nil, err
	}
	numbers := json.NewDecoder(bytes.NewReader(data))
	numbers.UseNumber() // a nonce has 64 bits
	return head[3], body, numbers.Decode(&body)
}

func (c *Control) keep(rights []byte) error {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return err
	}
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			return err
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			if c.File != nil {
				c.File.Close()
			}
			c.File = os.NewFile(uintptr(fd), "handed over")
		}
	}
	return nil
}

// SendWith sends a frame with a descriptor.
func (c *Control) SendWith(frame []byte, fd int) error {
	_, _, err := c.WriteMsgUnix(frame, syscall.UnixRights(fd), nil)
	return err
}

// Close ends the connection and lets go of the descriptor.
func (c *Control) Close() error {
	if c.File != nil {
		c.File.Close()
	}
	return c.UnixConn.Close()
}

// DialControl connects to a registrar's control socket.
func (pl *Plugin) DialControl(p *Proc) *Control {
	pl.node.tb.Helper()
	conn, err := net.Dial("unix", filepath.Join(pl.node.Registry, pl.Control(p)))
	if err != nil {
		pl.node.Fatalf("%v", err)
	}
	c := &Control{UnixConn: conn.(*net.UnixConn)}
	pl.dialled = append(pl.dialled, c)
	pl.node.tb.Cleanup(func() { c.Close() })
	return c
}

// CloseControls closes all that DialControl has given.
func (pl *Plugin) CloseControls() {
	for _, c := range pl.dialled {
		c.Close()
	}
	pl.dialled = nil
}

// Fake is a registrar of another release, by the test itself: it answers at the path
// and says that it has a control socket, on which it does as it is told. It takes no
// lease, and looks after the endpoint only once, when it makes it.
type Fake struct {
	registerapi.UnsafeRegistrationServer
	ControlName string // as looks are told

	pl       *Plugin
	listener *net.UnixListener // at the path
	control  net.Listener
	server   *grpc.Server
	runs     sync.WaitGroup

	mu    sync.Mutex
	conns []*Control
}

// StartFake starts a fake at the path. Each connection to its control socket is given
// to talk.
func (pl *Plugin) StartFake(tb testing.TB, talk func(f *Fake, c *Control)) *Fake {
	tb.Helper()
	temp := filepath.Join(pl.node.Registry, "."+pl.Driver+"-reg.0123abcd.tmp")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err == nil {
		listener.SetUnlinkOnClose(false)
		err = os.Rename(temp, pl.Path)
	}
	if err == nil {
		err = os.Symlink(filepath.Base(pl.Socket), pl.Endpoint)
	}
	if err != nil {
		pl.node.Fatalf("%v", err)
	}
	return pl.startFakeOn(tb, listener, talk)
}

// StartFakeOn starts a fake that accepts on a listener which was handed over.
func (pl *Plugin) StartFakeOn(tb testing.TB, handed *os.File, talk func(f *Fake, c *Control)) *Fake {
	tb.Helper()
	listener, err := net.FileListener(handed)
	if err != nil {
		pl.node.Fatalf("%v", err)
	}
	return pl.startFakeOn(tb, listener.(*net.UnixListener), talk)
}

func (pl *Plugin) startFakeOn(tb testing.TB, listener *net.UnixListener, talk func(f *Fake, c *Control)) (f *Fake) {
	tb.Helper()
	f = &Fake{pl: pl, listener: listener, ControlName: pl.ControlOf(os.Getpid()), server: grpc.NewServer()}
	registerapi.RegisterRegistrationServer(f.server, f)
	var err error
	f.control, err = net.Listen("unix", filepath.Join(pl.node.Registry, f.ControlName))
	if err != nil {
		pl.node.Fatalf("%v", err)
	}
	tb.Cleanup(f.Stop)
	f.runs.Go(func() { _ = f.server.Serve(listener) })
	f.runs.Go(func() {
		for {
			conn, err := f.control.Accept()
			if err != nil {
				return
			}
			c := &Control{UnixConn: conn.(*net.UnixConn)}
			f.mu.Lock()
			f.conns = append(f.conns, c)
			f.mu.Unlock()
			pl.node.Mark("the fake is connected to")
			f.runs.Go(func() { talk(f, c) })
		}
	})
	return f
}

// Handover is the frame with which the fake hands its listener over.
func (f *Fake) Handover() []byte {
	var st syscall.Stat_t
	if err := syscall.Lstat(f.pl.Path, &st); err != nil {
		panic(err)
	}
	return Frame(FrameHandover, map[string]any{
		"dev": st.Dev, "ino": st.Ino, "changed": st.Ctim.Nano(),
		"kubelet": map[string]any{"state": "confirmed", "since": time.Now()},
	})
}

// Listener calls do with the descriptor of the fake's listener.
func (f *Fake) Listener(do func(fd int)) {
	raw, err := f.listener.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { do(int(fd)) })
	}
	if err != nil {
		panic(err)
	}
}

// StopControl removes the control socket, and goes on otherwise.
func (f *Fake) StopControl() { f.control.Close() }

// Stop ends it. Only what is at its control socket's name is removed.
func (f *Fake) Stop() {
	f.StopControl()
	f.mu.Lock()
	for _, c := range f.conns {
		c.Close()
	}
	f.conns = nil
	f.mu.Unlock()
	f.server.Stop()
	f.runs.Wait()
}

// GetInfo answers kubelet and looks.
func (f *Fake) GetInfo(ctx context.Context, _ *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	if err := grpc.SetHeader(ctx, metadata.Pairs("holdfast-instance", "fake", "holdfast-version", "v99", "holdfast-host", "test",
		"holdfast-control", f.ControlName, "holdfast-started", time.Now().Format(time.RFC3339Nano))); err != nil {
		return nil, err
	}
	return &registerapi.PluginInfo{Type: registerapi.CSIPlugin, Name: f.pl.Driver, Endpoint: f.pl.Endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus takes note.
func (f *Fake) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	f.pl.node.Mark("kubelet tells the fake: registered: %v %s", s.PluginRegistered, s.Error)
	return &registerapi.RegistrationStatusResponse{}, nil
}

// Descriptors counts what a process has open.
func (p *Proc) Descriptors() int {
	p.node.tb.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		p.node.Fatalf("%v", err)
	}
	return len(entries)
}
