#!/bin/sh
# Runs a command in the directory of every Go module of the repository but
# tools, which only pins programs. It goes on after a failure, so that one run
# shows them all, and then fails.
#
#     scripts/each-module.sh go vet ./...
#     BUT="./a ./b" scripts/each-module.sh …        # but in these
set -eu

cd "$(dirname "$0")/.."
modules() {
	find . -name go.mod -not -path './internal/tools/*' -not -path '*/testdata/*' | xargs -n 1 dirname | grep -vxF "$(printf '%s\n' ${BUT:-none})" | sort
}
status=0
for dir in $(modules); do
	echo "== $dir: $*"
	(cd "$dir" && "$@") || status=1
done
exit "$status"
