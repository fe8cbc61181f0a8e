#!/bin/sh
# Installs redis-server, which the tests start and stop themselves, unless this
# machine has it (or valkey-server) already. It leaves no service running.
set -eu

say() { echo "install-redis: $*" >&2; }

found() { command -v "$1" >/dev/null 2>&1; }

# The program that REDIS_SERVER names is what the tests use, if it is set.
for name in ${REDIS_SERVER:-redis-server valkey-server}; do
	if found "$name"; then
		exit 0
	fi
done
if [ -n "${REDIS_SERVER:-}" ]; then
	say "REDIS_SERVER names $REDIS_SERVER, which is not there"
	exit 1
fi

# root runs a command with the rights that package managers need.
root() {
	if [ "$(id -u)" -ne 0 ] && found sudo; then
		sudo "$@"
	else
		"$@"
	fi
}

# Debian's packages start their services. policy-rc.d is how a machine says
# that it does not want that; a policy that is already there stays.
policy=/usr/sbin/policy-rc.d
forbid_services() {
	[ -e "$policy" ] && return
	trap allow_services EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	printf '#!/bin/sh\nexit 101\n' | root tee "$policy" >/dev/null
	root chmod 755 "$policy"
}
allow_services() { root rm -f "$policy"; }

with_apt() {
	root apt-get update
	forbid_services
	root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y --no-install-recommends redis-server
	# Nor should it start with the machine.
	if [ -d /run/systemd/system ]; then
		root systemctl disable redis-server
	fi
}

if found apt-get; then
	with_apt
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
