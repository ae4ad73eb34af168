package harness

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// HoldsLease reports whether the process has the lease file at its path locked,
// shared or exclusive, as the kernel tells in /proc/locks.
func (pl *Plugin) HoldsLease(p *Proc) bool {
	var st syscall.Stat_t
	if err := syscall.Stat(pl.Lease, &st); err != nil {
		return false
	}
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return false
	}
	defer locks.Close()
	pid, inode := fmt.Sprint(p.PID()), fmt.Sprintf(":%d", st.Ino)
	lines := bufio.NewScanner(locks)
	for lines.Scan() {
		// 1: FLOCK  ADVISORY  READ  1234 08:01:5678 0 EOF; a waiter has "->" after the number
		f := strings.Fields(lines.Text())
		if len(f) >= 6 && f[1] == "FLOCK" && f[4] == pid && strings.HasSuffix(f[5], inode) {
			return true
		}
	}
	return false
}

// AwaitLease waits until each of these holds the lease.
func (pl *Plugin) AwaitLease(within time.Duration, procs ...*Proc) {
	pl.node.tb.Helper()
	for _, p := range procs {
		pl.node.Await(p.Name+" to hold the lease", within, func() bool { return pl.HoldsLease(p) })
	}
}

// LockLease takes the lease exclusively from the test, as a leaver that froze
// would keep it, and gives a function that lets go.
func (pl *Plugin) LockLease() (release func()) {
	pl.node.tb.Helper()
	f, err := os.OpenFile(pl.Lease, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		pl.node.Fatalf("lock %s: %v", pl.Lease, err)
	}
	pl.node.Mark("the test holds the lease exclusively")
	return func() {
		f.Close()
		pl.node.Mark("the test let go of the lease")
	}
}

// Connections counts those to a unix socket of this name in the registration directory,
// as the kernel tells in /proc/net/unix: accepted ones, and those that wait.
func (pl *Plugin) Connections(name string) int {
	pl.node.tb.Helper()
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		pl.node.Fatalf("%v", err)
	}
	path := filepath.Join(pl.node.Registry, name)
	count := 0
	for line := range strings.Lines(string(table)) {
		// Num: RefCount Protocol Flags Type St Inode Path; the flag is that of a listener
		f := strings.Fields(line)
		if len(f) == 8 && f[7] == path && f[3] != "00010000" {
			count++
		}
	}
	return count
}
