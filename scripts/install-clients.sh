#!/bin/sh
# Installs the clients of other languages that internal/lab/sdktest/proxyclients puts behind the proxy, unless
# this machine has them already: requests, httpx and aiohttp for Python, Guzzle for PHP, OkHttp for Java and
# curl as Debian has them, and the packages of Node that package-lock.json names, with Node itself.
#
#     scripts/install-clients.sh --pypi   # the SDKs of requirements.txt for Python as well
set -eu

name=install-clients
. "$(dirname "$0")/packages.sh"
cd "$(dirname "$0")/../internal/lab/sdktest/proxyclients"

# lacking prints Debian's packages for what this machine does not have.
lacking() {
	found curl || echo curl
	for module in requests httpx aiohttp; do
		/usr/bin/python3 -c "import $module" 2>/dev/null || echo "python3-$module"
	done
	if ! found php || ! php -r "require 'GuzzleHttp/autoload.php';" >/dev/null 2>&1; then
		echo php-cli php-curl php-guzzlehttp-guzzle
	fi
	found javac || echo default-jdk-headless
	[ -e /usr/share/java/okhttp.jar ] || echo libokhttp-java
	found npm || echo npm
}

packages=$(lacking)
if [ -n "$packages" ]; then
	if ! found apt-get; then
		say "this machine lacks, by the names that Debian and Ubuntu have for them:" $packages
		exit 1
	fi
	# shellcheck disable=SC2086 # one word for each package
	apt_install $packages </dev/null >&2
fi

npm_install node >&2

if [ "${1-}" = --pypi ]; then
	/usr/bin/python3 -m venv python/.venv
	python/.venv/bin/python -m pip install --quiet --requirement python/requirements.txt >&2
fi
