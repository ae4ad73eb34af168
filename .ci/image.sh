#!/usr/bin/env bash
# image.sh OUTPUT: makes the multi-architecture image of bin/linux-*/ as an OCI layout in the directory OUTPUT.
# The same binaries give the same digest: no time, host, directory or umask goes into it (.ci/image-check.sh proves it).
set -euo pipefail
cd "$(dirname "$0")/.."

out=$1
name=csi-node-driver-registrar
storage=$(mktemp -d)
trap 'rm -rf "$storage"' EXIT
# A store of its own: nothing is left in, or taken from, the one of this machine.
store=(buildah --root "$storage/root" --runroot "$storage/run" --storage-driver vfs)

for platform in ${IMAGE_PLATFORMS:-linux/amd64 linux/arm64 linux/arm/v7 linux/ppc64le linux/s390x}; do
	"${store[@]}" bud --quiet --isolation chroot --platform "$platform" --format oci --timestamp 0 \
		--identity-label=false --omit-history --manifest "$name" \
		--build-arg "VERSION=$VERSION" --build-arg "COMMIT=$COMMIT" . >/dev/null
done

rm -rf "$out"
mkdir -p "$(dirname "$out")"
"${store[@]}" manifest push --quiet --all --format oci "$name" "oci:$out:$VERSION" >/dev/null
skopeo inspect --raw "oci:$out:$VERSION" | sha256sum | sed 's/^\([0-9a-f]*\).*/sha256:\1/'
