# Functions for scripts that install what tests need. A script sets name, for what it says, and
# reads this file.

say() { echo "$name: $*" >&2; }

found() { command -v "$1" >/dev/null 2>&1; }

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

# apt_install installs packages that have no service.
apt_install() {
	root apt-get update
	root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

# with_apt installs a package, whose service has its name.
with_apt() {
	forbid_services
	apt_install "$1"
	# Nor should it start with the machine.
	if [ -d /run/systemd/system ]; then
		root systemctl disable "$1"
	fi
}

# npm_install installs the packages of Node that the package-lock.json of a folder names. It notes
# which lock file npm has followed, so that a second run does nothing.
npm_install() {
	if ! cmp -s "$1/package-lock.json" "$1/node_modules/.of-lock"; then
		npm ci --prefix "$1" --no-audit --no-fund --loglevel=error
		cp "$1/package-lock.json" "$1/node_modules/.of-lock"
	fi
}
