//go:build !race

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

// apiServer is what kubelet finds at the other end of its clientset: a Node,
// and a CSINode that a file keeps for the next kubelet.
type apiServer struct {
	client *fake.Clientset
	node   string
	file   string
}

// newAPIServer serves the CSINode found in the file, if there is one.
func newAPIServer(node, file string) (*apiServer, error) {
	objects := []runtime.Object{&corev1.Node{
		// The same for every kubelet: a CSINode of another UID would be deleted.
		ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID("uid-of-" + node)},
	}}
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read CSINode: %w", err)
	default:
		kept := &storagev1.CSINode{}
		if err := json.Unmarshal(data, kept); err != nil {
			return nil, fmt.Errorf("parse CSINode %s: %w", file, err)
		}
		objects = append(objects, kept)
	}
	return &apiServer{client: fake.NewSimpleClientset(objects...), node: node, file: file}, nil
}

// follow reports the CSINode as it is, and from then on every change, each kept
// in the file before it is told. It returns once the watch stands.
func (a *apiServer) follow(ctx context.Context, out *report) error {
	nodes := a.client.StorageV1().CSINodes()
	changes, err := nodes.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch CSINode: %w", err)
	}
	list, err := nodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list CSINodes: %w", err)
	}
	drivers := map[string]string{}
	for i := range list.Items {
		drivers = driversOf(&list.Items[i])
	}
	out.write(event{Event: "csinode", Drivers: drivers})
	go func() {
		for change := range changes.ResultChan() {
			at := time.Now().UnixNano()
			node, ok := change.Object.(*storagev1.CSINode)
			if !ok || node.Name != a.node {
				continue
			}
			if err := a.keep(node); err != nil {
				fmt.Fprintln(os.Stderr, "kubelet:", err)
				os.Exit(1)
			}
			out.write(event{At: at, Event: "csinode", Drivers: driversOf(node)})
		}
	}()
	return nil
}

// keep writes the CSINode where the next kubelet finds it, whole or not at all.
func (a *apiServer) keep(node *storagev1.CSINode) error {
	data, err := json.Marshal(node)
	if err != nil {
		return fmt.Errorf("encode CSINode: %w", err)
	}
	next := a.file + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return fmt.Errorf("keep CSINode: %w", err)
	}
	if err := os.Rename(next, a.file); err != nil {
		return fmt.Errorf("keep CSINode: %w", err)
	}
	return nil
}

func driversOf(node *storagev1.CSINode) map[string]string {
	drivers := make(map[string]string, len(node.Spec.Drivers))
	for _, d := range node.Spec.Drivers {
		drivers[d.Name] = d.NodeID
	}
	return drivers
}
