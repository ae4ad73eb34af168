package control

import (
	"errors"
	"os"
	"testing"
)

func childMain(string) int { return 1 }

func TestUnsupported(t *testing.T) {
	p, err := New(t.TempDir(), driver)
	check(t, err)
	_, err = p.Listen(os.Getpid())
	wantErr(t, err, errors.ErrUnsupported)
	_, err = p.Dial(t.Context(), p.name(1, 1))
	wantErr(t, err, errors.ErrUnsupported)
}
