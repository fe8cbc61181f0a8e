#!/bin/sh
# Installs PgBouncer, behind which the tests of pgstore put a server, unless this machine has it already. It leaves
# no service running.
set -eu

name=install-pgbouncer
. "$(dirname "$0")/packages.sh"

installed() { found pgbouncer || [ -x /usr/sbin/pgbouncer ]; }

if installed; then
	exit 0
fi
if found apt-get; then
	with_apt pgbouncer
elif found brew; then
	brew install pgbouncer
elif found apk; then
	root apk add pgbouncer
elif found dnf; then
	root dnf install -y pgbouncer
fi </dev/null >&2

if ! installed; then
	say "no pgbouncer: install it (https://www.pgbouncer.org/install.html) and put it on PATH"
	exit 1
fi
