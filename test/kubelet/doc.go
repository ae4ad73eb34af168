// Package kubelet holds no code: its tests prove the registrar's binary against
// kubelet's own plugin manager and CSI handler, with real processes.
//
// It is a module of its own, since k8s.io/kubernetes must not reach the module
// that ships, and it must not import that one. Run it with
//
//	cd test/kubelet && go test -race ./...
//
// The environment says which registrar, which kubelet and how long a storm, see
// harness.Build and TestStorm. Linux only.
package kubelet
