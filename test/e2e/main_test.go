package e2e_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/holdfast-csi/node-driver-registrar/test/e2e/kit"
)

// cluster is the one under test.
var cluster *kit.Cluster

func TestMain(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	var err error
	cluster, err = kit.Connect(ctx)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// who is a registrar: the incumbent-like peer, or Holdfast.
type who string

const (
	peer     who = "peer"
	holdfast who = "holdfast"
)

func (w who) image() string {
	if w == peer {
		return cluster.Peer
	}
	return cluster.Registrar
}

// both runs a case with each.
func both(t *testing.T, run func(*testing.T, *kit.Run, who)) {
	for _, w := range []who{peer, holdfast} {
		t.Run(string(w), func(t *testing.T) { run(t, kit.New(t, cluster), w) })
	}
}

// Deadlines. What a test promises it checks by itself.
const (
	soon    = 15 * time.Second
	patient = 60 * time.Second
)
