package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Restart ends a component with SIGTERM and waits until another runs.
func (n *Node) Restart(ctx context.Context, component string) error {
	if !n.Running() {
		return errors.New("no node runs here")
	}
	old, err := n.find(component)
	if err != nil {
		return err
	}
	began := time.Now()
	p, err := os.FindProcess(old)
	if err != nil {
		return err
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("signal %s, process %d: %w", component, old, err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err = n.await(ctx, "another "+component, func(context.Context) bool {
		now, err := n.find(component)
		return err == nil && now != old
	})
	n.Say("restarted %s (%.1f s)", component, time.Since(began).Seconds())
	return err
}

// find gives the PID of a component: the child of this node's init that runs its
// command.
func (n *Node) find(component string) (int, error) {
	data, err := os.ReadFile(n.path(lockName))
	if err != nil {
		return 0, err
	}
	parent := strings.TrimSpace(string(data))
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		_, rest, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(rest); len(f) < 2 || f[0] == "Z" || f[1] != parent {
			continue
		}
		argv, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		for i, arg := range bytes.Split(argv, []byte{0}) {
			if i < 2 && string(arg) == component {
				return pid, nil
			}
		}
	}
	return 0, fmt.Errorf("no %s runs in this node", component)
}
