#!/bin/sh
# Does work under a permit: drive.sh CLIENTS POLICY KEY WAIT URL [fail].
clients=$1 policy=$2 key=$3 url=$5
export THROTTLE_WAIT="$4"
# shellcheck disable=SC2016 # the inner shell has the arguments
exec "$clients/throttled" "$policy" "$key" -- sh -c 'curl -s "$1" && [ "${2-}" != fail ] || exit 3' sh "$url" "${6-}"
