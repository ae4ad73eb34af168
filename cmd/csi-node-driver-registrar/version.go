package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

const product = "Holdfast csi-node-driver-registrar"

// Set by -ldflags "-X main.version=v1.2.3 -X main.commit=0123abc"; else what
// the go command recorded is used.
var version, commit string

// build says what this binary was made of.
type build struct {
	version, commit, goVersion, platform string
}

func readBuild() build {
	info, _ := debug.ReadBuildInfo()
	return newBuild(version, commit, info)
}

// newBuild fills what was not stamped from info, which may be nil.
func newBuild(version, commit string, info *debug.BuildInfo) build {
	b := build{version: version, commit: commit, goVersion: runtime.Version(), platform: "unknown"}
	if info == nil {
		info = &debug.BuildInfo{}
	}
	recorded := map[string]string{}
	for _, s := range info.Settings {
		recorded[s.Key] = s.Value
	}
	if recorded["GOOS"] != "" {
		b.platform = recorded["GOOS"] + "/" + recorded["GOARCH"]
	}
	if b.version == "" {
		b.version = info.Main.Version
	}
	if b.version == "" {
		b.version = "unknown"
	}
	if b.commit == "" {
		b.commit = recorded["vcs.revision"]
	}
	if b.commit == "" {
		b.commit = "unknown"
	}
	return b
}

func (b build) String() string {
	return fmt.Sprintf("%s %s (%s) %s %s", product, b.version, b.commit, b.goVersion, b.platform)
}
