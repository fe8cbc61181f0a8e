#!/bin/sh
# Prints how many instructions a call takes that finds room, in memory: the difference of
# two runs, divided by that of their calls. Other load on the machine does not change it.
# It needs valgrind.
#
#     benchmarks/instructions.sh
set -eu

cd "$(dirname "$0")"
command -v valgrind >/dev/null || { echo "valgrind is missing: apt-get install valgrind" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
go build -o "$folder/calls" ./cmd/calls

# count KIND CALLS prints the instructions of a whole run. Go's signals to its own
# threads, and more than one of these, are too much for valgrind.
count() {
	GOMAXPROCS=1 GOGC=off GODEBUG=asyncpreemptoff=1 valgrind --tool=callgrind \
		--callgrind-out-file=/dev/null "$folder/calls" "$1" "$2" 2>&1 | awk '/Collected/ { print $4 }'
}

for kind in acquire roundtrip wait; do
	few=$(count "$kind" 20000)
	many=$(count "$kind" 120000)
	echo "$kind: $(((many - few) / 100000)) instructions a call"
done
