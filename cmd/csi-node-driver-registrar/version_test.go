package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestBuild(t *testing.T) {
	recorded := &debug.BuildInfo{
		Main: debug.Module{Version: "v1.2.3-recorded"},
		Settings: []debug.BuildSetting{
			{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "s390x"}, {Key: "vcs.revision", Value: "abcdef"},
		},
	}
	for _, test := range []struct {
		version, commit string
		info            *debug.BuildInfo
		want            string
	}{
		{"v9", "123", recorded, "v9 (123) " + runtime.Version() + " linux/s390x"},
		{"", "", recorded, "v1.2.3-recorded (abcdef) " + runtime.Version() + " linux/s390x"},
		{"", "", &debug.BuildInfo{}, "unknown (unknown) " + runtime.Version() + " unknown"},
		{"v9", "", nil, "v9 (unknown) " + runtime.Version() + " unknown"},
	} {
		if got := newBuild(test.version, test.commit, test.info).String(); got != "Holdfast csi-node-driver-registrar "+test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
