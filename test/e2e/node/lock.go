package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lockName is the file that the init holds locked; it also marks a directory as
// a node's, so that nothing else is ever removed.
const lockName = "init.lock"

func (n *Node) openLock() (*os.File, error) {
	return os.OpenFile(n.path(lockName), os.O_RDWR|os.O_CREATE, 0o600)
}

// held reports whether somebody has the file locked. The answer is out of date
// at once, but an init that is dead does not come back.
func held(lock *os.File) bool {
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return true
	}
	_ = syscall.Flock(int(lock.Fd()), syscall.LOCK_UN)
	return false
}

// stopLimit is what the init gets to stop the components one by one.
const stopLimit = 40 * time.Second

// stopInit ends the init with SIGTERM, later with SIGKILL, and waits until it and
// with it the whole PID namespace is gone.
func (n *Node) stopInit(ctx context.Context) error {
	lock, err := os.Open(n.path(lockName))
	if err != nil {
		return err
	}
	defer lock.Close()
	pid := 0
	for deadline := time.Now().Add(2 * time.Second); held(lock); pause(ctx, 20*time.Millisecond) {
		data, _ := os.ReadFile(n.path(lockName))
		if pid, _ = strconv.Atoi(strings.TrimSpace(string(data))); pid > 0 {
			break
		}
		if time.Now().After(deadline) { // up is at work, or was killed just before its init said who it is
			return fmt.Errorf("%s is locked, but names no process: does another node up run?", lock.Name())
		}
	}
	if pid == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if !held(lock) { // so the descriptor may be that of a stranger with the same number
		return nil
	}
	n.Say("stopping the node …")
	for _, step := range []struct {
		signal unix.Signal
		limit  time.Duration
	}{{unix.SIGTERM, stopLimit}, {unix.SIGKILL, 10 * time.Second}} {
		if err := unix.PidfdSendSignal(fd, step.signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("signal process %d: %w", pid, err)
		}
		if ended(fd, step.limit) {
			return nil
		}
	}
	return fmt.Errorf("the node's init, process %d, does not end even by SIGKILL", pid)
}

// ended waits until the process of a pidfd is gone. For the init of a PID
// namespace that is after all others in it.
func ended(pidfd int, limit time.Duration) bool {
	for deadline := time.Now().Add(limit); ; {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		if k, err := unix.Poll(poll, int(left.Milliseconds())+1); err == nil && k == 1 {
			return true
		}
	}
}

// pause waits, or less when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
