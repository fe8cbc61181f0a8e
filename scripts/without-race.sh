#!/bin/sh
# Prints what make test-without-race runs: the tests that call soak.WithoutRace,
# as a pattern for go test -run, or their packages.
#
#     scripts/without-race.sh tests
#     scripts/without-race.sh packages
set -eu

cd "$(dirname "$0")/.."
files=$(grep -rlF --include='*_test.go' 'soak.WithoutRace(' . | grep -v '^\./internal/lab/soak/' | sort)
case $1 in
tests)
	# shellcheck disable=SC2086 # no file has a space in its name
	names=$(awk '/^func / { sub(/\(.*/, "", $2); name = $2 } /soak\.WithoutRace\(/ { print name }' $files | sort -u | paste -sd '|' -)
	echo "^($names)\$"
	;;
packages)
	echo "$files" | sed 's|/[^/]*$||' | sort -u | paste -sd ' ' -
	;;
*)
	echo "without-race.sh: tests or packages, not $1" >&2
	exit 1
	;;
esac
