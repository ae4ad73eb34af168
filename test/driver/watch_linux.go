package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// watchSockets prints who accepts at each of some paths whenever that changes,
// one line a change: nanoseconds since 1970, path, accepts or refuses or absent,
// and POD_NAME of the process that does. For the last it needs the host's PID
// namespace. It looks fifty times a second. At a driver's socket it says nothing
// when it is connected; a registrar's it asks, see registrarAt.
func (p pod) watchSockets(ctx context.Context) error {
	last, w := map[string]string{}, watch{}
	for pause(ctx, 20*time.Millisecond) {
		for path := range strings.SplitSeq(p.watch, ",") {
			now := w.acceptor(ctx, path)
			if now != last[path] {
				last[path] = now
				fmt.Println(time.Now().UnixNano(), path, now)
			}
		}
	}
	return nil
}

// watch is the pods of processes that were found, by their control sockets.
type watch map[string]string

func (w watch) acceptor(ctx context.Context, path string) string {
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "absent"
	case err != nil:
		return "refuses"
	}
	defer conn.Close()
	name := ""
	if strings.HasSuffix(path, "-reg.sock") {
		name = w.registrarAt(ctx, path)
	}
	if raw, err := conn.(*net.UnixConn).SyscallConn(); name == "" && err == nil {
		var peer *unix.Ucred
		if raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) == nil && err == nil {
			name = podOf(strconv.Itoa(int(peer.Pid)))
		}
	}
	return strings.TrimSpace("accepts " + name)
}

// registrarAt is the pod of the registrar that answers there, empty for one that
// shares its listening socket with nobody: the kernel knows who that is. Of a shared
// one it knows who was first to listen. Whoever answers tells the name of its
// control socket, in which its mount namespace is.
func (w watch) registrarAt(ctx context.Context, path string) string {
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return ""
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var header metadata.MD
	ctx = metadata.AppendToOutgoingContext(ctx, "holdfast-look", "glance")
	_, err = registerapi.NewRegistrationClient(conn).GetInfo(ctx, &registerapi.InfoRequest{}, grpc.Header(&header))
	control := strings.Join(header.Get("holdfast-control"), "")
	if err != nil || control == "" {
		return ""
	}
	if name, known := w[control]; known {
		return name
	}
	parts := strings.Split(control, ".") // … mount namespace, process, ctl
	namespace := "mnt:[" + parts[max(0, len(parts)-3)] + "]"
	links, _ := filepath.Glob("/proc/[0-9]*/ns/mnt")
	for _, l := range links {
		if in, err := os.Readlink(l); err == nil && in == namespace {
			w[control] = podOf(filepath.Base(filepath.Dir(filepath.Dir(l))))
			return w[control]
		}
	}
	return ""
}

// podOf is POD_NAME in the environment of a process.
func podOf(pid string) string {
	environ, _ := os.ReadFile(filepath.Join("/proc", pid, "environ")) // it may be gone
	for v := range bytes.SplitSeq(environ, []byte{0}) {
		if name, ok := bytes.CutPrefix(v, []byte("POD_NAME=")); ok {
			return string(name)
		}
	}
	return ""
}
