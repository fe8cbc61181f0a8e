#!/bin/sh
# Runs a command with REDIS_URL set to a redis-server of its own, on a free
# port of the loopback interface, and stops the server afterwards. The exit
# code is the command's.
#
#     scripts/with-redis.sh sh -c 'go run ./examples/dingtalk -processes 3 -redis "$REDIS_URL"'
set -eu

say() { echo "with-redis: $*" >&2; }

if [ $# -eq 0 ]; then
	say "usage: with-redis.sh command [argument ...]"
	exit 2
fi

server=
for name in ${REDIS_SERVER:-redis-server valkey-server}; do
	if command -v "$name" >/dev/null 2>&1; then
		server=$name
		break
	fi
done
if [ -z "$server" ]; then
	say "no redis-server: run \`make redis\`"
	exit 1
fi

dir=$(mktemp -d)
log=$dir/log
pid=

# shellcheck disable=SC2329 # called by trap
clean_up() {
	if [ -n "$pid" ]; then
		kill "$pid" 2>/dev/null || true # it may have ended by itself
		wait "$pid" 2>/dev/null || true
	fi
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# serve starts the server on a port. It succeeds once the server is ready and
# fails as soon as the server has ended, or after ten seconds.
serve() {
	: >"$log" # there before the first look at it
	"$server" --port "$1" --bind 127.0.0.1 --dir "$dir" --save "" --appendonly no \
		</dev/null >"$log" 2>&1 &
	pid=$!
	tries=0
	while ! grep -q "Ready to accept connections" "$log"; do
		tries=$((tries + 1))
		if [ "$tries" -gt 200 ] || ! kill -0 "$pid" 2>/dev/null; then
			return 1
		fi
		sleep 0.05
	done
}

# Only the server can tell whether a port is free: if somebody else has it, the
# next is tried. The first depends on the process id, so that two runs of this
# script seldom meet. All lie below the ports that systems hand out.
port=$((12000 + $$ % 19000))
until serve "$port"; do
	if ! grep -q "in use" "$log"; then
		say "$server did not start:"
		cat "$log" >&2
		exit 1
	fi
	port=$((port + 1))
done

status=0
REDIS_URL=redis://127.0.0.1:$port/0 "$@" || status=$?
exit "$status"
