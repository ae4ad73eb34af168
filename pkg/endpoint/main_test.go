package endpoint

import (
	"errors"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(childEnv); socket != "" {
		os.Exit(childMain(socket, os.Stdin, os.Stdout))
	}
	goleak.VerifyTestMain(m)
}

// childEnv makes the test binary another process that looks after the socket at
// its value.
const childEnv = "HOLDFAST_ENDPOINT_CHILD"

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

func wantWords(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, words := range want {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got error %v, want it to say %q", err, words)
		}
	}
}
