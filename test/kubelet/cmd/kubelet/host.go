//go:build !race

package main

import (
	"fmt"
	"path/filepath"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/kubernetes/pkg/volume"
)

// host is the kubelet that the CSI plugin sees: the methods which registration
// needs. Anything else panics on the nil interfaces, so that a kubelet version
// that wants more is noticed.
type host struct {
	volume.VolumeHost
	volume.KubeletVolumeHost

	root, node string
	client     clientset.Interface
	informers  informers.SharedInformerFactory

	once  sync.Once
	ready chan struct{} // closed when the CSI plugin lets kubelet be Ready
}

var (
	_ volume.VolumeHost        = (*host)(nil)
	_ volume.KubeletVolumeHost = (*host)(nil)
)

func (h *host) GetNodeName() types.NodeName                         { return types.NodeName(h.node) }
func (h *host) GetKubeClient() clientset.Interface                  { return h.client }
func (h *host) GetPluginDir(name string) string                     { return filepath.Join(h.root, "plugins", name) }
func (h *host) GetInformerFactory() informers.SharedInformerFactory { return h.informers }

func (h *host) CSIDriverLister() storagelisters.CSIDriverLister {
	return h.informers.Storage().V1().CSIDrivers().Lister()
}

func (h *host) GetServiceAccountTokenFunc() func(namespace, name string, tr *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return func(string, string, *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
		return nil, fmt.Errorf("no service account tokens here")
	}
}

// SetKubeletError with nil means that the CSINode is initialised.
func (h *host) SetKubeletError(err error) {
	if err == nil {
		h.once.Do(func() { close(h.ready) })
	}
}
