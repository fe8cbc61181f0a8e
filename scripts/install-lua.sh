#!/bin/sh
# Installs lua5.4, in which the tests play the scripts once more, unless this machine has it already.
set -eu

name=install-lua
. "$(dirname "$0")/packages.sh"

if found lua5.4; then
	exit 0
fi

if found apt-get; then
	apt_install lua5.4
elif found brew; then
	brew install lua@5.4
elif found apk; then
	root apk add lua5.4
fi </dev/null >&2

if ! found lua5.4; then
	say "no lua5.4: install Lua 5.4 (https://www.lua.org/download.html) and put it on PATH as lua5.4"
	exit 1
fi
