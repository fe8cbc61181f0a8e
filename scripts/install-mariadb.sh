#!/bin/sh
# Installs MariaDB's server, which the tests of sqlstore and internal/lab/benchmarks/cmd/stores start and stop themselves, unless this
# machine has it already. It leaves no service running.
set -eu

name=install-mariadb
. "$(dirname "$0")/packages.sh"

# The program that MYSQL_SERVER names is what the tests use, if it is set: a mariadbd, or a mysqld of MySQL.
installed() {
	if [ -n "${MYSQL_SERVER:-}" ]; then
		found "$MYSQL_SERVER"
		return
	fi
	# Debian has it in /usr/sbin, which is not on the PATH of everyone.
	PATH=$PATH:/usr/sbin:/usr/libexec
	found mariadbd && found mariadb-install-db
}

if installed; then
	exit 0
fi
if [ -n "${MYSQL_SERVER:-}" ]; then
	say "MYSQL_SERVER names $MYSQL_SERVER, which is not there"
	exit 1
fi

if found apt-get; then
	# These two have the programs and no service; mariadb-install-db needs one of the client's.
	apt_install mariadb-server-core mariadb-client-core
elif found brew; then
	brew install mariadb
elif found apk; then
	root apk add mariadb
elif found dnf; then
	root dnf install -y mariadb-server
fi </dev/null >&2

if ! installed; then
	say "no mariadbd and mariadb-install-db: install MariaDB's server (https://mariadb.org/download) and put both on PATH"
	exit 1
fi
