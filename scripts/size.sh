#!/bin/sh
# Runs the example with 60 processes and says what Redis did for them.
#     scripts/with-redis.sh scripts/size.sh
set -eu
cli() { redis-cli -u "$REDIS_URL" "$@"; }
field() { cli INFO "$1" | tr -d '\r' | grep -E "$2" || true; }
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/demo" ./examples/dingtalk
for nodes in ${NODES:-60}; do
	cli CONFIG RESETSTAT >/dev/null
	cli FLUSHALL >/dev/null
	echo "=== $nodes processes, ${PEOPLE:-15000} people, $(git rev-parse --short HEAD)"
	echo "--- before"; field memory '^used_memory:'; field cpu '^used_cpu_(user|sys):'
	"$bin/demo" -redis "$REDIS_URL" -processes "$nodes" -people "${PEOPLE:-15000}" >"$bin/out" 2>&1 &
	job=$!
	peak=0 clients=0
	while kill -0 $job 2>/dev/null; do
		c=$(field clients '^connected_clients:' | cut -d: -f2)
		m=$(field memory '^used_memory:' | cut -d: -f2)
		[ "$c" -gt "$clients" ] && clients=$c
		[ "$m" -gt "$peak" ] && peak=$m
		echo "sample: clients $c, $(field clients '^pubsub_clients:'), memory $m, $(field stats '^(instantaneous_ops_per_sec|instantaneous_input_kbps|instantaneous_output_kbps):' | tr '\n' ' ')"
		sleep 2
	done
	wait $job || true
	cat "$bin/out"
	echo "--- after: most clients $clients, most memory $peak"
	field cpu '^used_cpu_(user|sys):'
	field commandstats '^cmdstat_(evalsha|eval|publish|subscribe|ping|get|set|getrange|setrange|append|pexpire|time|hello|client)'
	cli DBSIZE
done
