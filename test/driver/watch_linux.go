package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// watchSockets prints who accepts at each of some paths whenever that changes,
// one line a change: nanoseconds since 1970, path, accepts or refuses or absent,
// and POD_NAME of the process that listens. For the last it needs the host's PID
// namespace. It looks twenty times a second, and says nothing when it is connected.
func (p pod) watchSockets(ctx context.Context) error {
	last := map[string]string{}
	for pause(ctx, 50*time.Millisecond) {
		for path := range strings.SplitSeq(p.watch, ",") {
			now := acceptor(path)
			if now != last[path] {
				last[path] = now
				fmt.Println(time.Now().UnixNano(), path, now)
			}
		}
	}
	return nil
}

func acceptor(path string) string {
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "absent"
	case err != nil:
		return "refuses"
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return "accepts"
	}
	var peer *unix.Ucred
	if raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return "accepts"
	}
	environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", peer.Pid))
	for v := range bytes.SplitSeq(environ, []byte{0}) {
		if name, ok := bytes.CutPrefix(v, []byte("POD_NAME=")); ok {
			return "accepts " + string(name)
		}
	}
	return "accepts"
}
