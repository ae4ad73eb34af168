//go:build !race && kubelet_v1_37

package main

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
	"k8s.io/kubernetes/pkg/volume/csi"
)

// kubelet v1.37: the plugin manager and its handlers have a context.

func runManager(ctx context.Context, m pluginmanager.PluginManager) {
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return true })
	m.Run(ctx, ready, ctx.Done())
}

func (h *handler) ValidatePlugin(ctx context.Context, name, endpoint string, versions []string) error {
	return h.validated(name, endpoint, csi.PluginHandler.ValidatePlugin(ctx, name, endpoint, versions))
}

func (h *handler) RegisterPlugin(ctx context.Context, name, endpoint string, versions []string, timeout *time.Duration) error {
	return h.registered(name, endpoint, csi.PluginHandler.RegisterPlugin(ctx, name, endpoint, versions, timeout))
}

func (h *handler) DeRegisterPlugin(ctx context.Context, name, endpoint string) {
	csi.PluginHandler.DeRegisterPlugin(ctx, name, endpoint)
	h.deregistered(name, endpoint)
}
