#!/bin/sh
# Installs redis-server, which the tests start and stop themselves, unless this
# machine has it (or valkey-server) already. It leaves no service running.
set -eu

name=install-redis
. "$(dirname "$0")/packages.sh"

# The program that REDIS_SERVER names is what the tests use, if it is set.
for server in ${REDIS_SERVER:-redis-server valkey-server}; do
	if found "$server"; then
		exit 0
	fi
done
if [ -n "${REDIS_SERVER:-}" ]; then
	say "REDIS_SERVER names $REDIS_SERVER, which is not there"
	exit 1
fi

if found apt-get; then
	with_apt redis-server
elif found brew; then
	brew install redis
elif found apk; then
	root apk add redis
elif found dnf; then
	# Newer releases of Fedora have Valkey in its place.
	root dnf install -y redis || root dnf install -y valkey
fi </dev/null >&2

if ! found redis-server && ! found valkey-server; then
	say "no redis-server: install Redis 7 or Valkey (https://redis.io/download) and put it on PATH"
	exit 1
fi
