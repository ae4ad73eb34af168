#!/usr/bin/env bash
# image-tools.sh: sees to buildah and skopeo. Installs them with apt as root on Debian; elsewhere says what to do.
set -euo pipefail

missing=()
for tool in buildah skopeo; do
	if ! command -v "$tool" >/dev/null; then missing+=("$tool"); fi
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
