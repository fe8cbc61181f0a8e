#!/bin/sh
# Prints how many instructions a call takes that finds room, in memory: the difference of
# two runs, divided by that of their calls. Other load on the machine does not change it.
# It needs valgrind.
#
#     internal/lab/benchmarks/instructions.sh
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

# price KIND CALLS prints the instructions of a call, from a run of so many and one of six times as many.
price() {
	few=$(count "$1" "$2")
	many=$(count "$1" $(($2 * 6)))
	echo "$1: $(((many - few) / ($2 * 5))) instructions a call"
}

for kind in acquire roundtrip wait; do price "$kind" 20000; done
for kind in answer row dingtalk; do price "$kind" 1000; done
