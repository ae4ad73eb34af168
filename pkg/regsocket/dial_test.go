package regsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"
)

func TestClassifyDial(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Dialed
	}{
		{nil, Connected},
		{errRefused, Refused},
		{fs.ErrNotExist, Absent},
		{errBusy, Busy},
		{context.DeadlineExceeded, Busy},
		{os.ErrDeadlineExceeded, Busy},
		{errDenied, Denied},
		{fs.ErrPermission, Denied},
		{context.Canceled, Other},
		{errors.New("something"), Other},
	} {
		if c.err != nil {
			c.err = fmt.Errorf("wrapped: %w", c.err)
		}
		if got := ClassifyDial(c.err); got != c.want {
			t.Errorf("%v: got %v, want %v", c.err, got, c.want)
		}
	}
}

func TestDialedNames(t *testing.T) {
	for d, want := range map[Dialed]string{
		Other: "other", Connected: "connected", Refused: "refused", Absent: "absent", Busy: "busy", Denied: "denied", 99: "other",
	} {
		if got := d.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestDialLastsAsLongAsCtx(t *testing.T) {
	p := newPlace(t, shortDir(t))
	published(t, p)
	ended, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	_, err := p.Dial(ended)
	if got := ClassifyDial(err); got != Busy {
		t.Fatalf("got %v (%v)", got, err)
	}
	conn, err := p.Dial(context.Background())
	check(t, err)
	check(t, conn.Close())
}
