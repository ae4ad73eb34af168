package endpoint

import (
	"context"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

func childDo(n *Names, command string) string {
	l, err := n.Read()
	if err != nil {
		return outcome(err)
	}
	switch command {
	case "pin":
		err = n.Pin(l.Socket)
	case "turn":
		err = n.Turn(l.Link, Target{Kind: ToSocket})
	case "remove":
		err = n.Remove(l.Others[0])
	case "probe":
		return n.Probe(ID{}).String()
	case "probe other":
		return n.Probe(l.Others[0]).String()
	case "dial":
		conn, err := n.Dial(context.Background(), ID{})
		if err == nil {
			_ = conn.Close()
		}
		return outcome(err)
	case "uncapable":
		// Of this thread only; the test binary's child has no other that acts.
		runtime.LockOSThread()
		var none [2]unix.CapUserData
		err = unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
	case "chroot":
		if err = unix.Chroot(filepath.Dir(n.Path(ID{}))); err == nil {
			err = unix.Chdir("/")
		}
	default:
		return "unknown command"
	}
	return outcome(err)
}
