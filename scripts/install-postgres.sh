#!/bin/sh
# Installs PostgreSQL's server, which the tests of pgstore and riverthrottle and internal/lab/benchmarks/cmd/stores start and stop themselves, unless this
# machine has it already. It leaves no service running.
set -eu

name=install-postgres
. "$(dirname "$0")/packages.sh"

# The folder that POSTGRES_BIN names is what the tests use, if it is set. Debian puts the server into a
# folder of its version.
installed() {
	for bin in ${POSTGRES_BIN:-/usr/lib/postgresql/*/bin /usr/libexec/postgresql* /opt/homebrew/opt/postgresql@*/bin}; do
		if [ -x "$bin/initdb" ] && [ -x "$bin/postgres" ]; then
			return 0
		fi
	done
	[ -z "${POSTGRES_BIN:-}" ] && found initdb && found postgres
}

if installed; then
	exit 0
fi
if [ -n "${POSTGRES_BIN:-}" ]; then
	say "POSTGRES_BIN names $POSTGRES_BIN, which has no initdb and postgres"
	exit 1
fi

if found apt-get; then
	with_apt postgresql
elif found brew; then
	brew install postgresql@17
elif found apk; then
	root apk add postgresql
elif found dnf; then
	root dnf install -y postgresql-server
fi </dev/null >&2

if ! installed; then
	say "no initdb and postgres: install PostgreSQL (https://www.postgresql.org/download) and put both on PATH"
	exit 1
fi
