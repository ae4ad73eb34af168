// Package kit is what the end-to-end tests are written with: plugins as
// DaemonSets, a CSINode that is watched, and pods that come and go meanwhile.
// Everything that happens goes into one trace, printed if the test fails.
//
// Goroutines: those of the informers of a Run, and one for each Load; they end
// with the test.
package kit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Images are what the cluster can run without pulling.
type Images struct {
	Registrar, Peer, Driver string
}

// Cluster is the cluster under test, and one node of it.
type Cluster struct {
	Images
	Client *kubernetes.Clientset
	Node   string
	// RestartKubelet is a command that does, empty if there is none.
	RestartKubelet string
	// Report is a directory for the facts of each case, empty if none are wanted.
	Report string
}

// Connect reads the environment: KUBECONFIG; the images HOLDFAST_E2E_REGISTRAR,
// HOLDFAST_E2E_PEER and HOLDFAST_E2E_DRIVER, which have defaults, as `make e2e`
// names them; HOLDFAST_E2E_RESTART_KUBELET, a shell command; HOLDFAST_E2E_REPORT, an
// absolute directory.
func Connect(ctx context.Context) (*Cluster, error) {
	path := os.Getenv("KUBECONFIG")
	if path == "" {
		return nil, errors.New("KUBECONFIG is not set: `make e2e` starts a node and sets it")
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Clean(path))
	if err != nil {
		return nil, fmt.Errorf("read KUBECONFIG: %w", err)
	}
	config.QPS, config.Burst = 200, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		Images: Images{
			Registrar: env("HOLDFAST_E2E_REGISTRAR", "localhost/holdfast/registrar:e2e"),
			Peer:      env("HOLDFAST_E2E_PEER", "localhost/holdfast/peer:e2e"),
			Driver:    env("HOLDFAST_E2E_DRIVER", "localhost/holdfast/driver:e2e"),
		},
		Client:         client,
		RestartKubelet: os.Getenv("HOLDFAST_E2E_RESTART_KUBELET"),
		Report:         os.Getenv("HOLDFAST_E2E_REPORT"),
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	i := slices.IndexFunc(nodes.Items, ready)
	if i < 0 {
		return nil, errors.New("no node is Ready")
	}
	c.Node = nodes.Items[i].Name
	return c, nil
}

func ready(n corev1.Node) bool {
	return !n.Spec.Unschedulable && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
