package endpoint_test

import (
	"testing"

	ep "github.com/holdfast-csi/node-driver-registrar/pkg/endpoint"
)

// Step is total: whatever the state and the event, it does not panic, gives at most one
// operation, and ends an instance that leaves.
func FuzzStep(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte{0, 1, 0x21, 0, 14, 1, 0x22, 4, 1, 7})
	f.Fuzz(func(t *testing.T, in []byte) {
		var s ep.State
		for len(in) >= 3 {
			e := ep.Event{News: ep.News(in[0] % uint8(ep.LeavesAsLast+1)), ID: id(in[1] & 7)}
			e.View.Socket = inode(in[1])
			e.View.Link = target(in[2]>>6, in[2]&7)
			for i := range e.View.Others[:min(len(in)-3, ep.Most)] {
				e.View.Others[i] = inode(in[3+i])
			}
			next, actions := ep.Step(s, e)
			if len(actions) > 1 {
				t.Fatalf("%d actions at once: %+v", len(actions), actions)
			}
			if s.Ended && next != s {
				t.Fatal("one that has ended goes on")
			}
			s, in = next, in[3:]
		}
	})
}

func inode(b byte) ep.Inode { return ep.Inode{ID: id(b & 7), Life: ep.Life(b >> 3 & 7)} }
