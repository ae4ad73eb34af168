#!/usr/bin/env bash
# image-check.sh: makes the image in two different directories, with different umasks, file times and (for the
# processor at hand) an empty build cache, and fails unless both have the same digest and hold what they should: one
# small file, which runs, under qemu where it is for another processor.
set -euo pipefail
cd "$(dirname "$0")/.."

name=csi-node-driver-registrar
limit=22000000 # bytes, unpacked
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
start=${HOLDFAST_START:-$(date +%s)}
say() { printf '[%4ds] %s\n' "$(($(date +%s) - start))" "$*"; }
die() {
	say "image-check: $*" >&2
	exit 1
}

# copy DIR: the work tree as git would commit it now.
copy() {
	mkdir -p "$1"
	git ls-files -z --cached --others --exclude-standard |
		while IFS= read -r -d '' f; do if [ -f "$f" ]; then printf '%s\0' "$f"; fi; done |
		tar --null --files-from - --create | tar --extract --no-same-permissions --directory "$1"
}

one=$work/one
two="$work/a much longer name/two"
(umask 022 && copy "$one")
(umask 077 && copy "$two" && find "$two" -exec touch --date=@1000000000 {} +)

make --no-print-directory -C "$one" image
host=linux-$(go env GOHOSTARCH)
# The second directory compiles the binary for this processor from nothing: a shared cache would hide a difference.
(umask 077 && GOCACHE=$work/cache make --no-print-directory -C "$two" "bin/$host/$name")
(umask 077 && make --no-print-directory -C "$two" image)

digest() { skopeo inspect --raw "oci:$1/bin/image:$VERSION" | sha256sum | cut -d' ' -f1; }
a=$(digest "$one")
b=$(digest "$two")
say "in one directory     sha256:$a"
say "in another directory sha256:$b"
[ "$a" = "$b" ] || {
	sha256sum "$one"/bin/linux-*/$name "$two"/bin/linux-*/$name >&2
	die "the digests differ"
}

# What is in it: one file, root's, 0755; the entrypoint; uid 0; nothing of this machine.
for arch in amd64 arm64 arm ppc64le s390x; do
	flags=(--override-os linux --override-arch "$arch")
	if [ "$arch" = arm ]; then flags+=(--override-variant v7); fi
	image=oci:$one/bin/image:$VERSION
	config=$(skopeo "${flags[@]}" inspect --config --raw "$image")
	for want in "\"architecture\":\"$arch\"" "\"Entrypoint\":[\"/$name\"]" '"User":"0"' '"created":"1970-01-01T00:00:00Z"'; do
		grep -qF "$want" <<<"$config" || die "$arch: the image's configuration lacks $want: $config"
	done
	skopeo "${flags[@]}" copy --quiet "$image" "dir:$work/$arch" >/dev/null
	layer=$(skopeo "${flags[@]}" inspect --format '{{index .Layers 0}}' "$image")
	list=$(tar --numeric-owner -tvzf "$work/$arch/${layer#sha256:}")
	[[ $list =~ ^-rwxr-xr-x\ 0/0\ +[0-9]+\ 1970-01-01\ 00:00\ $name$ ]] ||
		die "$arch: the layer should hold one file, 0755 and root's, and holds: $list"
	tar -xzf "$work/$arch/${layer#sha256:}" -C "$work/$arch"

	size=$(stat -c %s "$work/$arch/$name")
	((size < limit)) || die "$arch: the image has $size bytes, and should have fewer than $limit"

	run=()
	case $arch in
	"$(go env GOHOSTARCH)") ;;
	arm64) run=(qemu-aarch64-static) ;;
	*) run=("qemu-$arch-static") ;;
	esac
	said=$("${run[@]}" "$work/$arch/$name" --version 2>&1) || die "$arch: --version failed: $said"
	grep -qF "$VERSION" <<<"$said" || die "$arch: --version does not name $VERSION: $said"
	say "$arch: one file, 0755, uid 0, $((size / 1000000)) MB; runs${run[*]:+ with ${run[*]}}: $said"
done
say "image-check: the same digest twice"
