#!/bin/sh
# Installs prometheus and promtool, which make soak tries metrics and alerts with, unless this
# machine has them already. It leaves no service running.
set -eu

name=install-prometheus
. "$(dirname "$0")/packages.sh"

if found prometheus && found promtool; then
	exit 0
fi

if found apt-get; then
	with_apt prometheus
elif found brew; then
	brew install prometheus
elif found apk; then
	root apk add prometheus
fi </dev/null >&2

if ! found prometheus || ! found promtool; then
	say "no prometheus: install Prometheus 2 or 3 (https://prometheus.io/download) and put it and promtool on PATH"
	exit 1
fi
