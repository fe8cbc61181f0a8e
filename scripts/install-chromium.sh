#!/bin/sh
# Installs chromium, in which tests look at the page of package dashboard, and a font
# with Chinese characters for its pictures, unless this machine has them already.
set -eu

name=install-chromium
. "$(dirname "$0")/packages.sh"

# has_chinese reports whether a font with Chinese characters is there. Without fc-list
# nothing can be said, and the browser brings none.
has_chinese() { found fc-list && [ -n "$(fc-list :lang=zh-cn)" ]; }

# The program that CHROMIUM names is what the tests use, if it is set.
for browser in ${CHROMIUM:-chromium chromium-browser google-chrome}; do
	if found "$browser" && has_chinese; then
		exit 0
	fi
done
if [ -n "${CHROMIUM:-}" ] && ! found "$CHROMIUM"; then
	say "CHROMIUM names $CHROMIUM, which is not there"
	exit 1
fi

if found apt-get; then
	root apt-get update
	root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y --no-install-recommends chromium fontconfig fonts-noto-cjk
elif found brew; then
	brew install --cask chromium
elif found apk; then
	root apk add chromium font-noto-cjk
elif found dnf; then
	root dnf install -y chromium google-noto-sans-cjk-fonts
fi </dev/null >&2

if ! found chromium && ! found chromium-browser && ! found google-chrome; then
	say "no chromium: install Chromium or Chrome and put it on PATH, or set CHROMIUM"
	exit 1
fi
