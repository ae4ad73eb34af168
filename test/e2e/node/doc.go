// Package node runs Kubernetes on this Linux machine, as root, without Docker
// and without a registry: etcd, the control plane, containerd and one kubelet.
// It is for tests; what tests do with it they do through its kubeconfig.
//
// # What it promises
//
//   - All ports are on 127.0.0.1 and free ones; nothing is reachable from outside.
//   - Every process lives in one PID namespace below one init (see Init). When the
//     init ends, however it ends, the kernel ends the others.
//   - Every mount lives in that init's mount namespace and goes with it. There
//     /var/lib/kubelet, /run/containerd and /var/log are directories of the node's
//     own, and kubelet's sysctls are files, so that the machine's stay as they are.
//   - What remains after a crash, of this program too, is the work directory, empty
//     cgroups, and up to two empty mount points. Up begins with removing it; so does
//     Down.
//   - One lock file says whether the node runs: its init holds it, locked, for as
//     long as it lives, and its content is the init's PID.
//
// # What it does not know
//
// Which images will run and what is tested. It knows of no second node beside
// itself: one at a time on a machine. Pods need hostNetwork: the only CNI
// plugin is loopback. cgroup v2 and containerd 2 should do and were not tried.
//
// # Goroutines
//
// Up leaves one, which waits for the init's end so that it is no zombie. Init has
// one for each component, which starts it anew when it ends, and one that takes in
// orphans; all end with its context.
package node
