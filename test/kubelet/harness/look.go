package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// lookTimeout is how long a look waits for an answer.
const lookTimeout = time.Second

// Sight is what stands at a registration path.
type Sight struct {
	PID    int    // the process that answered, or else that listens; 0 when nobody could be connected to
	Driver string // the name it announces; empty when it did not answer
	Err    error  // why there was no answer; an errno where the connection failed
}

func (s Sight) String() string {
	if s.Err != nil {
		return fmt.Sprintf("pid %d, no answer: %v", s.PID, s.Err)
	}
	return fmt.Sprintf("pid %d answers for %s", s.PID, s.Driver)
}

// Answered reports whether somebody announced a driver.
func (s Sight) Answered() bool { return s.Err == nil }

// look asks who accepts at the path, with one connection and one GetInfo, which
// says that it is a look and not kubelet's. The process is known from the
// socket's credentials: the kernel gives those of who called listen. One that may
// accept on another's listener says who it is itself.
func look(ctx context.Context, path string) Sight {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var pid atomic.Int64
	var dialErr atomic.Pointer[error]
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0), grpc.WithDisableRetry(), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
			if err != nil {
				dialErr.Store(&err)
				return nil, err
			}
			if cred, err := credentialsOf(c); err == nil {
				pid.Store(int64(cred.Pid))
			}
			return c, nil
		}))
	if err != nil {
		return Sight{Err: err}
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, "holdfast-look", "glance")
	var said metadata.MD
	info, err := registerapi.NewRegistrationClient(conn).GetInfo(ctx, &registerapi.InfoRequest{}, grpc.Header(&said))
	if failed := dialErr.Load(); err != nil && failed != nil {
		err = *failed
	}
	sight := Sight{PID: int(pid.Load()), Driver: info.GetName(), Err: err}
	if sharer, ok := pidOf(said); ok {
		sight.PID = sharer
	}
	return sight
}

// pidOf is the process that answered with this header, if it has a control socket,
// ".<driver>-reg.<mount namespace>.<process>.ctl".
func pidOf(said metadata.MD) (int, bool) {
	for _, name := range said.Get("holdfast-control") {
		name = strings.TrimSuffix(name, ".ctl")
		pid, err := strconv.Atoi(name[strings.LastIndexByte(name, '.')+1:])
		return pid, err == nil
	}
	return 0, false
}

func credentialsOf(c net.Conn) (*unix.Ucred, error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, credErr)
}

// Dials is what a Dialer saw.
type Dials struct {
	Made   int
	Failed map[syscall.Errno]int
}

// DialConstantly connects to the path a thousand times a second until ctx ends;
// then the result arrives. Each connection is closed at once: it counts whether
// somebody could be reached, not what they said. (Without the pause it would be
// a flood that keeps the acceptor from answering anybody.)
func DialConstantly(ctx context.Context, path string) <-chan Dials {
	done := make(chan Dials, 1)
	go func() {
		d := Dials{Failed: map[syscall.Errno]int{}}
		next := time.NewTicker(time.Millisecond)
		defer next.Stop()
		for ctx.Err() == nil {
			<-next.C
			d.Made++
			c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
			if err == nil {
				c.Close()
				continue
			}
			var errno syscall.Errno
			if errors.As(err, &errno) {
				d.Failed[errno]++
			}
		}
		done <- d
	}()
	return done
}
