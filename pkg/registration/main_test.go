package registration

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// helperEnv names what the re-executed test binary does instead of testing.
const helperEnv = "HOLDFAST_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperEnv) {
	case "serve": // a registrar at os.Args[1], until stdin ends
		helperServe(os.Args[1])
	case "hold": // a registrar that looks at os.Args[1] and holds on
		helperHold(os.Args[1])
	default:
		goleak.VerifyTestMain(m)
	}
}

func helperServe(path string) {
	s, err := NewServer(Config{Info: testInfo, Self: testSelf, OnCall: func(Call) error { return nil }})
	helperCheck(err)
	l, err := net.Listen("unix", path)
	helperCheck(err)
	go func() { helperCheck(s.Serve(l)) }()
	helperReady()
}

func helperHold(path string) {
	p, err := Ask(context.Background(), dialer(path), true)
	helperCheck(err)
	defer p.Close()
	helperReady()
}

func helperReady() {
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func helperCheck(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

var (
	testInfo = Info{Driver: "csi.example.com", Endpoint: "/var/lib/kubelet/plugins/csi.example.com/csi.sock"}
	testSelf = Identity{
		Instance: "node-a/41/1722", Version: "v0.1.0", Host: "csi-node-x7k2p",
		Started: time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC),
	}
)
