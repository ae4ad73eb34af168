package csidriver

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if helper() {
		return
	}
	goleak.VerifyTestMain(m)
}
