//go:build !race

// Command kubelet is the part of kubelet that registers CSI drivers, and
// nothing else: its real plugin manager and its real CSI plugin handler
// (k8s.io/kubernetes/pkg/kubelet/pluginmanager and pkg/volume/csi) over an API
// server that is a fake clientset and a file.
//
// It is a process of its own because pkg/volume/csi keeps its drivers in
// globals: only a new process is a restarted kubelet. The CSINode lives on in
// the file given with --csinode, as it lives on in a real API server.
//
// Standard output is one JSON object a line, see event. Standard error is
// kubelet's own log. It ends at SIGTERM or SIGINT, as kubelet does, without
// deregistering anything.
//
// Goroutines: the watch of the CSINode and kubelet's own; all end with the
// process. It is left out of builds with -race, so that a test run with -race
// does not compile kubelet a second time.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
	"k8s.io/kubernetes/pkg/volume/csi"
)

func main() {
	root := flag.String("root-dir", "", "kubelet's directory; it watches plugins_registry below it")
	node := flag.String("node", "node", "name of the node and of its CSINode")
	file := flag.String("csinode", "", "file that keeps the CSINode over restarts (created when it is not there)")
	klog.InitFlags(nil)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *root, *node, *file); err != nil {
		fmt.Fprintln(os.Stderr, "kubelet:", err)
		os.Exit(1)
	}
}

// run is a kubelet's life: CSI plugin, CSINode, plugin manager, until ctx ends.
func run(ctx context.Context, root, node, file string) error {
	if root == "" || file == "" {
		return fmt.Errorf("--root-dir and --csinode are needed")
	}
	out := newReport(os.Stdout)
	api, err := newAPIServer(node, file)
	if err != nil {
		return err
	}
	if err := api.follow(ctx, out); err != nil {
		return err
	}

	h := &host{root: root, node: node, client: api.client, ready: make(chan struct{})}
	h.informers = informers.NewSharedInformerFactory(api.client, csi.CsiResyncPeriod)
	if err := csi.ProbeVolumePlugins()[0].Init(h); err != nil {
		return fmt.Errorf("init the CSI plugin: %w", err)
	}
	h.informers.Start(ctx.Done())
	h.informers.WaitForCacheSync(ctx.Done())
	select {
	case <-h.ready: // kubelet posts no Ready before its CSINode is initialised
	case <-ctx.Done():
		return nil
	}

	manager := pluginmanager.NewPluginManager(filepath.Join(root, "plugins_registry"), &record.FakeRecorder{})
	manager.AddHandler("CSIPlugin", &handler{out: out})
	out.write(event{Event: "ready"})
	runManager(ctx, manager)
	return nil
}
