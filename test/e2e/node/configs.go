package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// PauseImage is the sandbox's image, which Up makes; Name is the node's name.
const (
	PauseImage = "localhost/holdfast/pause:e2e"
	Name       = "127.0.0.1"
)

// writeConfigs writes every file that a component reads, and the argument lists,
// one argument a line, since they hold ports that were chosen just now.
func (n *Node) writeConfigs(ctx context.Context, ports []int) error {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	snapshotter, err := n.snapshotter(ctx)
	if err != nil {
		return err
	}
	fill := func(text string) string {
		for name, value := range map[string]any{
			"DIR": n.Dir, "CGROUPS": n.cgroupRoot(), "RUNC": runc, "PAUSE": PauseImage, "NAME": Name, "SNAPSHOTTER": snapshotter,
			"ETCD": ports[0], "PEER": ports[1], "API": ports[2], "KUBELET": ports[3], "HEALTH": ports[4], "STREAM": ports[5],
		} {
			text = strings.ReplaceAll(text, "${"+name+"}", fmt.Sprint(value))
		}
		return text
	}
	err = nil
	for name, text := range map[string]string{
		"containerd.toml":  containerdConfig,
		"cni/10-lo.conf":   loopback,
		"kubelet.yaml":     kubeletConfig,
		"kubeconfig":       kubeconfig,
		"api":              "https://127.0.0.1:${API}",
		"args/etcd":        etcdArgs,
		"args/apiserver":   apiServerArgs,
		"args/controllers": controllerArgs,
		"args/scheduler":   schedulerArgs,
		"args/kubelet":     kubeletArgs,
	} {
		err = errors.Join(err, writeFile(n.path(name), fill(text), 0o600))
	}
	return err
}

const containerdConfig = `version = 2
root = "${DIR}/containerd"
state = "/run/containerd/state"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "${DIR}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "${DIR}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${PAUSE}"
  # For a root without CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "${STREAM}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "${DIR}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "${SNAPSHOTTER}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "${RUNC}"
        SystemdCgroup = false
`

// The node is Ready at once with this; pods have the host's network.
const loopback = `{"cniVersion": "0.4.0", "name": "lo", "type": "loopback"}
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: ${KUBELET}
healthzBindAddress: 127.0.0.1
healthzPort: ${HEALTH}
readOnlyPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: "${DIR}/pki/ca.crt"}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: "unix://${DIR}/containerd.sock"
cgroupDriver: cgroupfs
cgroupRoot: "/${CGROUPS}"
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
volumePluginDir: "${DIR}/flexvolume"
resolvConf: ""
evictionHard:
  memory.available: 50Mi
  nodefs.available: 100Mi
  imagefs.available: 100Mi
volumeStatsAggPeriod: 2s
imageMinimumGCAge: 24h
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
`

const kubeconfig = `apiVersion: v1
kind: Config
current-context: holdfast
clusters:
- name: holdfast
  cluster: {server: "https://127.0.0.1:${API}", certificate-authority: "${DIR}/pki/ca.crt"}
contexts:
- name: holdfast
  context: {cluster: holdfast, user: admin}
users:
- name: admin
  user: {tokenFile: "${DIR}/token"}
`

const etcdArgs = `--data-dir=${DIR}/etcd
--unsafe-no-fsync
--log-level=warn
--listen-client-urls=http://127.0.0.1:${ETCD}
--advertise-client-urls=http://127.0.0.1:${ETCD}
--listen-peer-urls=http://127.0.0.1:${PEER}
--initial-advertise-peer-urls=http://127.0.0.1:${PEER}
--initial-cluster=default=http://127.0.0.1:${PEER}
`

const apiServerArgs = `--etcd-servers=http://127.0.0.1:${ETCD}
--bind-address=127.0.0.1
--secure-port=${API}
--endpoint-reconciler-type=none
--service-cluster-ip-range=10.0.0.0/24
--authorization-mode=AlwaysAllow
--anonymous-auth=false
--token-auth-file=${DIR}/tokens.csv
--client-ca-file=${DIR}/pki/ca.crt
--tls-cert-file=${DIR}/pki/apiserver.crt
--tls-private-key-file=${DIR}/pki/apiserver.key
--service-account-issuer=https://kubernetes.default.svc
--service-account-key-file=${DIR}/pki/service-account.key
--service-account-signing-key-file=${DIR}/pki/service-account.key
--kubelet-client-certificate=${DIR}/pki/apiserver-kubelet-client.crt
--kubelet-client-key=${DIR}/pki/apiserver-kubelet-client.key
--kubelet-preferred-address-types=InternalIP,Hostname
--allow-privileged=true
--profiling=false
`

const controllerArgs = `--kubeconfig=${DIR}/kubeconfig
--leader-elect=false
--bind-address=127.0.0.1
--secure-port=0
--root-ca-file=${DIR}/pki/ca.crt
--service-account-private-key-file=${DIR}/pki/service-account.key
--flex-volume-plugin-dir=${DIR}/flexvolume
--profiling=false
`

const schedulerArgs = `--kubeconfig=${DIR}/kubeconfig
--leader-elect=false
--bind-address=127.0.0.1
--secure-port=0
--profiling=false
`

const kubeletArgs = `--config=${DIR}/kubelet.yaml
--kubeconfig=${DIR}/kubeconfig
--root-dir=/var/lib/kubelet
--cert-dir=${DIR}/pki/kubelet
--hostname-override=${NAME}
`

// containerd and the others are the components' command lines.
func (n *Node) containerd() []string {
	return []string{"containerd", "--config=" + n.path("containerd.toml"), "--log-level=warn"}
}

func (n *Node) etcd() []string      { return n.command("etcd", "etcd") }
func (n *Node) apiServer() []string { return n.command("kube-apiserver", "apiserver") }
func (n *Node) controllerManager() []string {
	return n.command("kube-controller-manager", "controllers")
}
func (n *Node) scheduler() []string { return n.command("kube-scheduler", "scheduler") }
func (n *Node) kubelet() []string   { return n.command("kubelet", "kubelet") }

// command reads the arguments that writeConfigs wrote.
func (n *Node) command(component, args string) []string {
	data, _ := os.ReadFile(n.path("args", args)) // without them the component says what it misses
	return append([]string{n.path("bin", "controlplane"), component}, strings.Fields(string(data))...)
}
