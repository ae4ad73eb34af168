#!/usr/bin/env bash
# progress.sh LABEL COMMAND…: runs COMMAND (go build -v, go install -v …) and says every ten seconds how far it is.
# What the command says is shown only if it fails. HOLDFAST_START is the second from which elapsed time is counted.
set -euo pipefail

label=$1
shift
start=${HOLDFAST_START:-$(date +%s)}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

say() { printf '[%4ds] %s\n' "$(($(date +%s) - start))" "$*"; }

# far counts what go prints: "go: downloading …" for a module, an import path for a package that it compiles.
far() {
	awk -v label="$label" '
		/^go: downloading/ { modules++; next }
		/^[^ #]+$/         { packages++; last = $0 }
		END {
			line = label
			if (modules)  line = line ", " modules " modules fetched"
			if (packages) line = line ", " packages " packages compiled, now " last
			print line
		}' "$log"
}

say "$label …"
began=$(date +%s)
"$@" >"$log" 2>&1 &
child=$!
trap 'kill "$child" 2>/dev/null || true; rm -f "$log"; exit 130' INT TERM

ticks=0
while kill -0 "$child" 2>/dev/null; do
	sleep 0.2
	ticks=$((ticks + 1))
	if ((ticks % 50 == 0)); then say "$(far)"; fi
done

rc=0
wait "$child" || rc=$?
if ((rc != 0)); then
	grep -vE '^(go: downloading .*|[[:alnum:]./_-]+)$' "$log" | tail -n 100 >&2 || true
	say "$label: failed (exit $rc)" >&2
	exit "$rc"
fi
took=$(($(date +%s) - began))
if ((took >= 2)); then say "$label: done in ${took} s"; fi
