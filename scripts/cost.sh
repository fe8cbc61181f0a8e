#!/usr/bin/env bash
# Prints what a command costs from an empty build cache, and once more from the
# cache that the first run left: minutes, and minutes of processor time (user and
# system, of all processes that it started and waited for). Modules must be there:
# downloads would be counted.
#
#     scripts/cost.sh make test
set -euo pipefail

GOCACHE=$(mktemp -d)
export GOCACHE
trap 'rm -rf "$GOCACHE"' EXIT

echo "$(go version), $(getconf _NPROCESSORS_ONLN) processors, $(date -u +%Y-%m-%d), $(git rev-parse --short HEAD)"
for cache in empty warm; do
	log=$GOCACHE/$cache.log
	TIMEFORMAT='%R %U %S'
	if ! cost=$({ time "$@" >"$log" 2>&1; } 2>&1); then
		grep -E -- '(--- )?FAIL|panic:|DATA RACE' "$log" >&2 || true
		tail -n 50 "$log" >&2
		exit 1
	fi
	echo "$cost" | awk -v cache=$cache '{ printf "%s build cache: %.1f minutes, %.1f processor-minutes\n", cache, $1 / 60, ($2 + $3) / 60 }'
done
