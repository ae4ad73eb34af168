package main

import (
	"context"

	"github.com/holdfast-csi/node-driver-registrar/pkg/options"
	"github.com/holdfast-csi/node-driver-registrar/pkg/registrar"
)

// register runs until ctx is done. An error is the reason of an exit with 1.
func register(ctx context.Context, o options.Options, version string) error {
	r, err := registrar.New(registrar.Config{
		CSIAddress:      o.CSIAddress,
		Endpoint:        o.KubeletRegistrationPath,
		RegistrationDir: o.PluginRegistrationPath,
		Timeout:         o.Timeout,
		DriverWait:      o.DriverWait,
		HTTPEndpoint:    o.HTTPEndpoint,
		EnablePprof:     o.EnablePprof,
		KeepEndpoint:    o.KeepEndpoint,
		Strict:          o.Strict,
		Handover:        o.Handover,
		OnDriverRestart: o.OnDriverRestart,
		Version:         version,
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}
