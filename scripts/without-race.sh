#!/bin/sh
# Prints what make test-without-race runs: the tests that call soak.WithoutRace,
# as a pattern for go test -run, or their packages.
#
#     scripts/without-race.sh tests
#     scripts/without-race.sh packages    # of the root module
#     scripts/without-race.sh modules     # the folders of the other modules that have such tests
set -eu

cd "$(dirname "$0")/.."
files=$(grep -rlF --include='*_test.go' 'soak.WithoutRace(' . | grep -v '^\./internal/lab/soak/' | sort)
folders=$(echo "$files" | sed 's|/[^/]*$||' | sort -u)

# The folder of the module to which a folder belongs.
module() {
	dir=$1
	while [ ! -f "$dir/go.mod" ]; do dir=$(dirname "$dir"); done
	echo "$dir"
}

case $1 in
tests)
	# shellcheck disable=SC2086 # no file has a space in its name
	names=$(awk '/^func / { sub(/\(.*/, "", $2); name = $2 } /soak\.WithoutRace\(/ { print name }' $files | sort -u | paste -sd '|' -)
	echo "^($names)\$"
	;;
packages)
	for folder in $folders; do
		if [ "$(module "$folder")" = . ]; then echo "$folder"; fi
	done | paste -sd ' ' -
	;;
modules)
	for folder in $folders; do module "$folder"; done | sort -u | grep -vx '\.' || true
	;;
*)
	echo "without-race.sh: tests, packages or modules, not $1" >&2
	exit 1
	;;
esac
