package control

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

const driver = "hostpath.csi.k8s.io"

// childEnv makes the test binary another instance with its value as directory.
const childEnv = "HOLDFAST_CONTROL_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(childMain(dir))
	}
	goleak.VerifyTestMain(m)
}
