package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// The test binary is the driver too, and runs itself in a mount namespace of its
// own, so that the machine sees no mount.
const (
	asDriver = "HOLDFAST_TEST_AS_DRIVER"
	inside   = "HOLDFAST_TEST_INSIDE"
)

// noNamespace says why the tests run without one.
var noNamespace error

func TestMain(m *testing.M) {
	if os.Getenv(asDriver) != "" {
		main()
		return
	}
	if os.Getenv(inside) == "" {
		cmd := inNamespace(os.Args)
		if noNamespace = cmd.Start(); noNamespace == nil {
			_ = cmd.Wait() // what is wrong, it has said
			os.Exit(cmd.ProcessState.ExitCode())
		}
	}
	os.Exit(m.Run())
}

// inNamespace needs root, or else a user namespace in which we are.
func inNamespace(argv []string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

func requireMounts(t *testing.T) {
	t.Helper()
	if noNamespace != nil {
		t.Skipf("NOT TESTED: no mount namespace without root and CAP_SYS_ADMIN, or user namespaces: %v", noNamespace)
	}
}

// TestVolume: a volume is mounted once, holds the driver's file, and leaves nothing.
func TestVolume(t *testing.T) {
	for _, kind := range []string{"tmpfs", "bind"} {
		t.Run(kind, func(t *testing.T) {
			requireMounts(t)
			dir := t.TempDir()
			data, target := filepath.Join(dir, "data"), filepath.Join(dir, "pod", "volume")
			d := start(t, dir, "--mount="+kind, "--data="+data, "--name=a.driver", "--node-id=here")
			for range 2 { // kubelet may ask again
				if err := d.publish("v1", target, nil); err != nil {
					t.Fatal(err)
				}
			}
			if m := mounts(t, target); len(m) != 1 || kind == "tmpfs" && m[0] != "tmpfs" {
				t.Errorf("mounts at the target: %v", m)
			}
			if got := read(t, filepath.Join(target, witness)); got != "a.driver here\n" {
				t.Errorf("the volume's file has %q", got)
			}
			stats, err := d.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "v1", VolumePath: target})
			if u := stats.GetUsage(); err != nil || len(u) != 1 || u[0].Total == 0 || kind == "tmpfs" && u[0].Total != 1<<20 {
				t.Errorf("statistics: %v, %v", stats, err)
			}
			source := filepath.Join(data, "v1")
			if kind == "bind" {
				write(t, filepath.Join(target, "written-by-the-pod"), "x")
				read(t, filepath.Join(source, "written-by-the-pod"))
			} else if exists(t, data) {
				t.Error("a tmpfs has something in --data")
			}
			for range 2 {
				if err := d.unpublish("v1", target); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := d.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "v1", VolumePath: target}); status.Code(err) != codes.NotFound {
				t.Errorf("statistics of what is not mounted: %v, want %v", err, codes.NotFound)
			}
			if m := mounts(t, target); len(m) > 0 || exists(t, target) || exists(t, source) {
				t.Errorf("left: mounts %v, target %v, data %v", m, exists(t, target), exists(t, source))
			}
		})
	}
}

// TestCrash: the volume's attribute ends the driver at once, which leaves its
// socket where it is. Another value does not.
func TestCrash(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "--mount=bind", "--data="+filepath.Join(dir, "data"))
	err := d.publish("v1", filepath.Join(dir, "volume"), map[string]string{"crash": "true"})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the call in which it crashed: %v, want %v", err, codes.Unavailable)
	}
	if code := d.wait(); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	if !exists(t, d.socket) {
		t.Error("it removed its socket")
	}
	if exists(t, filepath.Join(dir, "volume")) {
		t.Error("it made the volume's directory before it crashed")
	}
}

// TestVolumeOutlivesCrash: what was mounted before a crash stays mounted, and the
// next driver, at the same socket, unmounts it.
func TestVolumeOutlivesCrash(t *testing.T) {
	requireMounts(t)
	dir := t.TempDir()
	target, args := filepath.Join(dir, "volume"), []string{"--mount=bind", "--data=" + filepath.Join(dir, "data")}
	first := start(t, dir, args...)
	if err := first.publish("v1", target, map[string]string{"crash": "false"}); err != nil {
		t.Fatal(err)
	}
	if err := first.publish("v2", filepath.Join(dir, "other"), map[string]string{"crash": "true"}); err == nil {
		t.Error("a call was answered by a driver that crashed in it")
	}
	first.wait()
	if m := mounts(t, target); len(m) != 1 {
		t.Errorf("mounts at the target after the crash: %v", m)
	}
	second := start(t, dir, args...)
	if err := second.unpublish("v1", target); err != nil {
		t.Error(err)
	}
	if m := mounts(t, target); len(m) > 0 || exists(t, target) {
		t.Errorf("left: mounts %v, target %v", m, exists(t, target))
	}
}

// TestUsage: flags that do not go together end it with 1 and a sentence.
func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--mount=bind":   "--mount=bind needs --data",
		"--mount=floppy": "--mount=floppy is neither tmpfs nor bind",
	} {
		out, err := command(t.TempDir(), args).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %q; want exit code 1 and %q", args, err, out, want)
		}
	}
}

// driver is one that runs as a process, and a client of it.
type driver struct {
	csi.NodeClient
	t      *testing.T
	cmd    *exec.Cmd
	socket string
}

func command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append([]string{"--endpoint=" + filepath.Join(dir, "csi.sock")}, args...)...)
	cmd.Env = append(os.Environ(), asDriver+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start returns when it serves. It is killed at the test's end.
func start(t *testing.T, dir string, args ...string) *driver {
	t.Helper()
	d := &driver{t: t, cmd: command(dir, args...), socket: filepath.Join(dir, "csi.sock")}
	said, err := d.cmd.StdoutPipe()
	d.cmd.Stderr = os.Stderr
	if err == nil {
		err = d.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.cmd.Process.Kill(); d.wait() })
	lines := bufio.NewReader(said)
	if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintln("serving", d.socket) {
		t.Fatalf("it said %q first: %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // until it ends
	conn, err := grpc.NewClient("unix://"+d.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	d.NodeClient = csi.NewNodeClient(conn)
	return d
}

// wait gives the exit code, once it has ended.
func (d *driver) wait() int {
	if d.cmd.ProcessState == nil {
		_ = d.cmd.Wait()
	}
	return d.cmd.ProcessState.ExitCode()
}

func (d *driver) publish(id, target string, attributes map[string]string) error {
	_, err := d.NodePublishVolume(d.t.Context(), &csi.NodePublishVolumeRequest{VolumeId: id, TargetPath: target, VolumeContext: attributes})
	return err
}

func (d *driver) unpublish(id, target string) error {
	_, err := d.NodeUnpublishVolume(d.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target})
	return err
}

// mounts are the file systems' types of what is mounted at a path.
func mounts(t *testing.T, path string) (types []string) {
	t.Helper()
	for line := range strings.Lines(read(t, "/proc/self/mountinfo")) {
		before, after, _ := strings.Cut(line, " - ")
		if strings.Fields(before)[4] == path {
			types = append(types, strings.Fields(after)[0])
		}
	}
	return types
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}
