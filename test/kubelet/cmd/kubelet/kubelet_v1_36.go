//go:build !race && !kubelet_v1_34 && !kubelet_v1_37

package main

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
	"k8s.io/kubernetes/pkg/volume/csi"
)

// kubelet v1.36, the default: the plugin manager has a context, its handlers have none.

func runManager(ctx context.Context, m pluginmanager.PluginManager) {
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return true })
	m.Run(ctx, ready, ctx.Done())
}

func (h *handler) ValidatePlugin(name, endpoint string, versions []string) error {
	return h.validated(name, endpoint, csi.PluginHandler.ValidatePlugin(name, endpoint, versions))
}

func (h *handler) RegisterPlugin(name, endpoint string, versions []string, timeout *time.Duration) error {
	return h.registered(name, endpoint, csi.PluginHandler.RegisterPlugin(name, endpoint, versions, timeout))
}

func (h *handler) DeRegisterPlugin(name, endpoint string) {
	csi.PluginHandler.DeRegisterPlugin(name, endpoint)
	h.deregistered(name, endpoint)
}
