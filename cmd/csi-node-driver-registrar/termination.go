package main

import (
	"fmt"
	"io/fs"
	"strings"
)

// longestTermination is how much kubelet reads of a termination message, in
// bytes, counted from its end (MaxContainerTerminationMessageLength,
// pkg/kubelet/container/runtime.go v1.36.3).
const longestTermination = 4096

// writeTerminationLog replaces the contents of the termination log by reason.
// It writes only to a regular file that is there already: kubelet mounts one
// for each start of a container, and anything else at that name is not its.
func writeTerminationLog(name, reason string) error {
	f, err := openTerminationLog(name)
	if err != nil {
		return fmt.Errorf("open termination log: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return fmt.Errorf("stat termination log: %w", err)
	} else if !info.Mode().IsRegular() {
		return fmt.Errorf("termination log %s is no regular file: %w", name, fs.ErrInvalid)
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("empty termination log: %w", err)
	}
	if _, err := f.WriteString(shorten(reason, longestTermination)); err != nil {
		return fmt.Errorf("write termination log: %w", err)
	}
	return nil
}

// shorten keeps the beginning of s, whole characters of at most n bytes.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}
