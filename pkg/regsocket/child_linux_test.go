package regsocket

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func childChroot(dir string) error {
	if err := unix.Chroot(dir); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// childSpares is what a child does with the listening descriptor that it
// inherited as its number 3.
type childSpares struct {
	spare  *Spare
	socket *Socket
	ended  chan error
}

func (c *childSpares) do(p *Place, command, argument string) (err error) {
	switch command {
	case "adopt":
		var id ID
		if _, err := fmt.Sscanf(argument, "%d:%d@%d", &id.Dev, &id.Ino, &id.Changed); err != nil {
			return err
		}
		c.spare, err = p.AdoptSpare(os.NewFile(3, "inherited"), id)
	case "listen":
		if c.socket, err = c.spare.Listen(); err == nil {
			c.ended = greet(c.socket, "child")
		}
	case "mine":
		var mine bool
		if mine, _, err = p.Mine(c.socket); err == nil && !mine {
			err = errors.New("not mine")
		}
	case "stop": // Accept waits all the while.
		err = errors.Join(c.socket.Close(), <-c.ended)
	case "drop":
		err = c.spare.Close()
	default:
		err = errors.New("unknown command")
	}
	return err
}
