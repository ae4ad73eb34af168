//go:build !windows

package options

const windowsPaths = false
