#!/bin/sh
# Tests what needs no Redis and no PostgreSQL, in every Go module, and compiles the rest with its tests: for
# systems on which there are none. What checks the repository's own text and not a program,
# runs elsewhere.
#
#     scripts/without-redis.sh -race
set -eu

if [ "${1-}" != --here ]; then
	cd "$(dirname "$0")/.."
	exec scripts/each-module.sh "$PWD/scripts/without-redis.sh" --here "$@"
fi
shift
go vet ./...
# Test binaries and what they are linked from. A list of its own, because a pipe hides that it failed.
binaries=$(go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./...)
packages=$(echo "$binaries" | grep '^[^ ]*\.test ' |
	grep -v -e '/redistest' -e '/pgtest' -e '/mysqltest' -e '^[^ ]*/mutants\.test ' -e '^[^ ]*/trace\.test ' | sed 's/\.test .*//')
# shellcheck disable=SC2086 # one word for each package
[ -z "$packages" ] || go test -vet=off -short -shuffle=on -count=1 "$@" $packages
