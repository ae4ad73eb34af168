package kubelet_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/kubelet/harness"
)

// bin are the programs, built once.
var bin harness.Binaries

// Deadlines. They are for a machine with two busy cores; what a test promises it
// checks by itself.
const (
	soon    = 10 * time.Second // a second's work of kubelet or of a registrar
	patient = 40 * time.Second // something that includes a back-off or a silent peer
)

func TestMain(m *testing.M) {
	harness.RunDenied() // does not return if this process is a launcher
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		// The tests wait for kubelet, they do not compute.
		_ = flag.Set("test.parallel", "10")
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hf-bin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if bin, err = harness.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	harness.ForbidCaching()
	for _, s := range skipped.list {
		fmt.Fprintln(os.Stderr, "NOT TESTED:", s)
	}
	return code
}

// skipped are the tests that could not be run here; TestMain says so aloud.
var skipped struct {
	mu   sync.Mutex
	list []string
}

func skip(t *testing.T, why string) {
	t.Helper()
	skipped.mu.Lock()
	skipped.list = append(skipped.list, t.Name()+": "+why)
	skipped.mu.Unlock()
	t.Skip(why)
}
