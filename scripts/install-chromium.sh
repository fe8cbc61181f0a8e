#!/bin/sh
# Installs what servers/dashboard/browsertest looks at the page of package dashboard with, unless this
# machine has it already: chromium, a font with Chinese characters, and axe-core, for which npm is needed.
set -eu

name=install-chromium
. "$(dirname "$0")/packages.sh"

# has_chinese reports whether a font with Chinese characters is there. Without fc-list
# nothing can be said, and the browser brings none.
has_chinese() { found fc-list && [ -n "$(fc-list :lang=zh-cn)" ]; }

# has_browser reports whether a browser is there that the tests find.
has_browser() {
	if [ -n "${CHROMIUM:-}" ]; then
		found "$CHROMIUM"
	else
		found chromium || found chromium-browser || found google-chrome
	fi
}

# lacking prints Debian's packages for what this machine does not have. Ubuntu has no package of
# chromium, only a snap, so a browser that is there must not be asked for because a font is missing.
lacking() {
	has_browser || echo chromium
	has_chinese || echo fonts-noto-cjk fontconfig
	found npm || echo npm
}

packages=$(lacking)
if [ -n "$packages" ]; then
	if found apt-get; then
		# shellcheck disable=SC2086 # one word for each package
		apt_install $packages
	elif found brew; then
		brew install node
		brew install --cask chromium
	elif found apk; then
		root apk add chromium font-noto-cjk fontconfig npm
	elif found dnf; then
		root dnf install -y chromium google-noto-sans-cjk-fonts fontconfig npm
	fi </dev/null >&2
fi
if ! has_browser; then
	say "no chromium: install Chromium or Chrome and put it on PATH, or set CHROMIUM"
	exit 1
fi
if ! found npm; then
	say "no npm: install Node.js"
	exit 1
fi
npm_install "$(dirname "$0")/../servers/dashboard/browsertest" >&2
