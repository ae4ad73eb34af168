#!/usr/bin/env bash
# image-tools.sh [qemu-aarch64-static]: sees to buildah and skopeo, and on demand to what runs other processors' binaries.
# Installs them with apt as root on Debian; elsewhere says what to do.
set -euo pipefail

missing=()
for tool in buildah skopeo "$@"; do
	package=$tool
	if [[ $tool = qemu-*-static ]]; then package=qemu-user-static; fi
	if ! command -v "$tool" >/dev/null; then missing+=("$package"); fi
done
if ((${#missing[@]} == 0)); then exit 0; fi

if ! command -v apt-get >/dev/null; then
	echo "the image needs ${missing[*]}, and this machine has no apt-get: install ${missing[*]} with its package manager, then run this again" >&2
	exit 1
fi
if ((EUID != 0)); then
	echo "the image needs ${missing[*]}: run  sudo apt-get install ${missing[*]}  then this again" >&2
	exit 1
fi
echo "installing ${missing[*]} with apt-get"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >/dev/null
