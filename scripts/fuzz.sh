#!/bin/sh
# Runs every fuzz target of the module in the current directory for FUZZTIME,
# half a minute unless it says otherwise. It goes on after a failure, so that one
# run shows them all, and then fails.
set -eu

status=0
time=${FUZZTIME:-30s}
packages=$(go list ./...)
for package in $packages; do
	# Not in one pipe with grep: a package that does not build must be seen.
	tests=$(go test -list '^Fuzz' "$package") || status=1
	for target in $(echo "$tests" | grep '^Fuzz' || true); do
		echo "-- $package $target for $time"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" || status=1
	done
done
exit "$status"
