#!/bin/sh
# Runs a command in the directory of every Go module of the repository but
# tools, which only pins programs. It goes on after a failure, so that one run
# shows them all, and then fails.
#
#     scripts/each-module.sh go vet ./...
#     JOBS=2 scripts/each-module.sh go test ./...   # two modules at a time
#     BUT="./a ./b" scripts/each-module.sh …        # but in these
#
# With JOBS, what a module's command prints is shown when it has ended.
set -eu

if [ "${1-}" = --in ]; then
	dir=$2
	shift 2
	if out=$(cd "$dir" && "$@" 2>&1); then status=0; else status=1; fi
	printf '== %s: %s\n%s\n' "$dir" "$*" "$out"
	exit "$status"
fi

cd "$(dirname "$0")/.."
modules() {
	find . -name go.mod -not -path './tools/*' -not -path '*/testdata/*' | xargs -n 1 dirname | grep -vxF "$(printf '%s\n' ${BUT:-none})" | sort
}
if [ "${JOBS:-1}" -gt 1 ]; then
	modules | xargs -P "$JOBS" -I '{}' scripts/each-module.sh --in '{}' "$@"
	exit
fi
status=0
for dir in $(modules); do
	echo "== $dir: $*"
	(cd "$dir" && "$@") || status=1
done
exit "$status"
