package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// pod is what the program can be instead of a driver; at most one is set.
type pod struct {
	hold, await, list, kill, term, hammer, watch string
}

// role gives what to do, nil for a driver.
func (p pod) role() func(context.Context) error {
	switch {
	case p.hold != "":
		return p.useVolume
	case p.await != "":
		return p.awaitSocket
	case p.list != "":
		return p.listDirectories
	case p.kill != "":
		return func(context.Context) error { return signalProcesses(syscall.SIGKILL, p.kill) }
	case p.term != "":
		return func(context.Context) error { return signalProcesses(syscall.SIGTERM, p.term) }
	case p.hammer != "":
		return p.hammerRegistrar
	case p.watch != "":
		return p.watchSockets
	}
	return nil
}

// useVolume is a pod with a volume. It fails if the driver's file is not there,
// says what is in it, and waits for the end.
func (p pod) useVolume(ctx context.Context) error {
	data, err := os.ReadFile(filepath.Join(p.hold, witness))
	if err != nil {
		return fmt.Errorf("the volume is not mounted: %w", err)
	}
	fmt.Printf("%s is mounted by %s", p.hold, data)
	<-ctx.Done()
	return nil
}

// awaitSocket is for a postStart hook of a driver: what is started after it finds
// the driver serving.
func (p pod) awaitSocket(ctx context.Context) error {
	for {
		if conn, err := net.Dial("unix", p.await); err == nil {
			return conn.Close()
		}
		if !pause(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// listDirectories looks at directories of the host. A symlink's target follows its
// name and an arrow.
func (p pod) listDirectories(context.Context) error {
	for dir := range strings.SplitSeq(p.list, ",") {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if target, err := os.Readlink(path); err == nil {
				path += "->" + target
			}
			fmt.Println(path)
		}
	}
	return nil
}

// signalProcesses needs the host's PID namespace. Finding none is an error.
func signalProcesses(sig syscall.Signal, substring string) error {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	found := 0
	for _, f := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		argv, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(argv, []byte(substring)) || bytes.Contains(argv, []byte("="+substring)) {
			continue
		}
		process, err := os.FindProcess(pid)
		if err == nil {
			err = process.Signal(sig)
		}
		if err != nil {
			return fmt.Errorf("signal process %d: %w", pid, err)
		}
		fmt.Println(sig, "to", pid, string(bytes.ReplaceAll(argv, []byte{0}, []byte(" "))))
		found++
	}
	if found == 0 {
		return fmt.Errorf("no process has %q in its command line", substring)
	}
	return nil
}

// hammerRegistrar makes a registrar that does not collect garbage (GOGC=off) run
// out of memory. Its calls are marked as no call of kubelet's.
func (p pod) hammerRegistrar(ctx context.Context) error {
	conn, err := grpc.NewClient("unix://"+p.hammer, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, "holdfast-look", "glance")
	client := registerapi.NewRegistrationClient(conn)
	for calls := 0; ; calls++ {
		if _, err := client.GetInfo(ctx, &registerapi.InfoRequest{}); err != nil {
			fmt.Println("after", calls, "calls:", err)
			return nil
		}
	}
}
