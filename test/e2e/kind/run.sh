#!/usr/bin/env bash
# run.sh [FLAGS OF GO TEST]: the end-to-end tests in a kind cluster, which it makes and deletes.
# It needs Docker, kind v0.33.0, and what `make e2e-images` needs. KIND_IMAGE is the node's image, kind's own if it is not
# set. It was written on a machine without Docker and was not run there.
set -euo pipefail
cd "$(dirname "$0")/../../.."

cluster=holdfast-e2e
KUBECONFIG=$(mktemp)
export KUBECONFIG
trap 'kind delete cluster --name "$cluster"; rm -f "$KUBECONFIG"' EXIT

make e2e-images
kind create cluster --name "$cluster" --config test/e2e/kind/cluster.yaml --wait 3m ${KIND_IMAGE:+--image "$KIND_IMAGE"}
for image in registrar peer driver; do
	kind load image-archive --name "$cluster" "bin/e2e/$image.tar"
done
cd test/e2e
HOLDFAST_E2E_RESTART_KUBELET="docker exec $cluster-control-plane systemctl restart kubelet" \
	go test -v -p 1 -count=1 -timeout 0 "$@" ./...
