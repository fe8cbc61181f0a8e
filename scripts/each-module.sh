#!/bin/sh
# Runs a command in the directory of every Go module of the repository but
# tools, which only pins programs. It goes on after a failure, so that one run
# shows them all, and then fails.
#
#     scripts/each-module.sh go vet ./...
set -eu

cd "$(dirname "$0")/.."
status=0
for file in $(find . -name go.mod -not -path './tools/*' -not -path '*/testdata/*' | sort); do
	dir=$(dirname "$file")
	echo "== $dir: $*"
	(cd "$dir" && "$@") || status=1
done
exit "$status"
