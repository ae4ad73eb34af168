//go:build !linux

package endpoint

import (
	"context"
	"errors"
	"io"
	"testing"
)

func TestNotSupported(t *testing.T) {
	n, err := NewNames("/csi/csi.sock")
	check(t, err)
	_, readErr := n.Read()
	_, sweepErr := n.Sweep(0)
	_, dialErr := n.Dial(context.Background(), ID{})
	_, usableErr := Usable("/csi/csi.sock", "/csi/csi.sock", nil)
	for _, err := range []error{
		readErr, sweepErr, dialErr, usableErr, n.Pin(ID{Ino: 1}), n.Turn(Target{}, Target{Kind: ToSocket}), n.Remove(ID{Ino: 1}),
	} {
		wantErr(t, err, errors.ErrUnsupported)
	}
	if got := n.Probe(ID{}); got != Unclear {
		t.Errorf("got %v", got)
	}
}

func childMain(string, io.Reader, io.Writer) int { return 1 }
