package lease

import (
	"fmt"
	"testing"
)

func TestKilledHolder(t *testing.T) {
	for _, command := range []string{"join", "exclusive"} {
		t.Run(command, func(t *testing.T) {
			path := leasePath(t)
			holder := startChild(t, path)
			holder.must(t, command, "ok")
			wantLocked(t, path, true)
			holder.kill()
			wantLocked(t, path, false)
		})
	}
}

// L2 of the design: of several who leave at once exactly one is told that it is
// alone. Only the winner's lock lasts, so the others ask until they give up.
func TestOneWinnerOfSeveralLeavers(t *testing.T) {
	for _, leavers := range []int{2, 3, 8} {
		t.Run(fmt.Sprint(leavers), func(t *testing.T) {
			path := leasePath(t)
			children := make([]*child, leavers)
			for i := range children {
				children[i] = startChild(t, path)
			}
			for range 12 {
				for _, c := range children {
					c.must(t, "join 20s", "ok")
				}
				for _, c := range children {
					c.send(t, "leave 60ms")
				}
				var won int
				for _, c := range children {
					switch got := c.receive(t); got {
					case "ok":
						won++
					case "held":
					default:
						t.Fatalf("leave: %s", got)
					}
				}
				if won != 1 {
					t.Fatalf("%d of %d were told to be alone", won, leavers)
				}
				for _, c := range children {
					c.must(t, "drop", "ok")
				}
			}
		})
	}
}

// A newcomer that waits while the last one leaves and removes the file gets a
// lock on a file that stands at the path.
func TestJoinWhileTheLastOneRemovesTheFile(t *testing.T) {
	path := leasePath(t)
	last, newcomer := startChild(t, path), startChild(t, path)
	for range 20 {
		last.must(t, "exclusive", "ok")
		newcomer.send(t, "join 20s")
		last.must(t, "remove", "ok")
		if got := newcomer.receive(t); got != "ok" {
			t.Fatalf("join: %s", got)
		}
		wantLocked(t, path, true)
		newcomer.must(t, "drop", "ok")
	}
}
