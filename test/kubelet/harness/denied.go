package harness

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// deniedEnv marks a process as the launcher that Denied describes.
const deniedEnv = "HOLDFAST_TEST_DENIED"

// Denied is a launcher for StartUnder: the program runs with one system call
// answered by an errno, as on a file system that lacks flock, or a kernel
// without renameat2, or with no inotify instance left. It re-executes the test
// binary, whose TestMain must call RunDenied.
func Denied(syscallNumber uint32, errno syscall.Errno) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return []string{"/usr/bin/env", fmt.Sprintf("%s=%d,%d", deniedEnv, syscallNumber, errno), self}, nil
}

// RunDenied does nothing in a test binary that was started as such. In a
// launcher it installs the filter and becomes the program in its arguments.
func RunDenied() {
	number, errno, ok := strings.Cut(os.Getenv(deniedEnv), ",")
	if !ok {
		return
	}
	fmt.Fprintln(os.Stderr, "launch:", deny(number, errno))
	os.Exit(1)
}

// deny returns only with an error.
func deny(number, errno string) error {
	nr, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return err
	}
	code, err := strconv.ParseUint(errno, 10, 16)
	if err != nil {
		return err
	}
	os.Unsetenv(deniedEnv)

	// The filter belongs to a thread, and exec keeps the calling one.
	runtime.LockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(nr), Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(code)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return fmt.Errorf("install the filter: %w", err)
	}
	return syscall.Exec(os.Args[1], os.Args[1:], os.Environ())
}
