//go:build !linux

package main

import (
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

func mountTmpfs(string) error     { return errors.ErrUnsupported }
func mountBind(_, _ string) error { return errors.ErrUnsupported }
func unmount(string) error        { return errors.ErrUnsupported }

func usage(string) (*csi.VolumeUsage, error) { return nil, errors.ErrUnsupported }
