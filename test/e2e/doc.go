// Package e2e holds no code: its tests judge a registrar where people run it, in
// DaemonSets on a real node, beside kubelet, with pods that mount and unmount.
//
// Each case is run with an incumbent-like peer (test/peer), which shows that the
// test sees a loss where there is one, and with Holdfast.
//
// They know nothing of how the cluster came to be: KUBECONFIG says where it is,
// and kit.Images says which images it has. `make e2e` does all of it on this
// machine, with the node of test/e2e/node; kind/run.sh does it with Docker.
//
// With HOLDFAST_E2E_REPORT, a directory, each case writes down what it recorded
// (package facts), and cmd/report makes timelines and pictures of that.
package e2e
