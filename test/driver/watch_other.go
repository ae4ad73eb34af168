//go:build !linux

package main

import (
	"context"
	"errors"
)

// watchSockets needs to know which process listens.
func (pod) watchSockets(context.Context) error { return errors.ErrUnsupported }
