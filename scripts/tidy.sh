#!/bin/sh
# Fails if the go.mod or go.sum of the module in this folder is not tidy. A module that is built with a go.work of its own is
# looked at with the replacements of that file.
set -eu

if [ ! -f go.work ]; then
	exec go mod tidy -diff
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp go.mod "$work/tidy.mod"
cp go.sum "$work/tidy.sum"
go work edit -json | sed -n 's/.*"Path": "\(.*\)".*/\1/p' | paste -d= - - | while read -r replacement; do
	go mod edit -replace="$replacement" "$work/tidy.mod"
done
GOWORK=off go mod tidy -diff -modfile="$work/tidy.mod"
