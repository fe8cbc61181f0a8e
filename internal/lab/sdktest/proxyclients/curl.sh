#!/bin/sh
# Calls a model with curl, at $BASE_URL.
set -eu

send() { # body, options
	body=$1
	shift
	curl --silent --show-error --fail-with-body ${TIMEOUT:+--max-time "$TIMEOUT"} ${RETRIES:+--retry "$RETRIES"} \
		${PREFER:+--header "Prefer: $PREFER"} --json "$body" "$@" "$BASE_URL/chat/completions"
}

call() {
	answer=$(mktemp)
	send '{"model":"m"}' --output "$answer" --write-out '%{stderr}%{http_code}\n%header{retry-after}\n%header{via}\n%header{server-timing}\n%{exitcode}\n%{errormsg}\n' 2>"$answer.told" || true
	{
		read -r line
		while [ "${line#curl: }" != "$line" ]; do # what --show-error says
			read -r line
		done
		status=$line
		read -r retry_after
		read -r via
		read -r timing
		read -r code
		read -r message
	} <"$answer.told"
	printf '{"status":%d,"retryAfter":"%s","via":"%s","timing":"%s","error":"%s","message":"%s","answer":%s}\n' \
		"$(expr "$status" + 0 || true)" "$retry_after" "$via" "$timing" "${code#0}" "$message" "$(cat "$answer" | grep . || echo null)"
	rm "$answer" "$answer.told"
}

# events prints the events of a stream, up to so many.
events() {
	pipe=$(mktemp -u)
	mkfifo "$pipe"
	curl --silent --show-error --no-buffer --json '{"model":"m","stream":true}' "$BASE_URL/chat/completions" >"$pipe" &
	left=$1
	while [ "$left" -gt 0 ] && read -r line; do
		case $line in
		"data: {"*)
			printf '{"event":"%s"}\n' "$(expr "$line" : '.*"content":"\([^"]*\)"')"
			left=$((left - 1))
			;;
		esac
	done <"$pipe"
	rm "$pipe"
	kill $! 2>/dev/null || true
}

case $1 in
calls)
	for _ in $(seq "$2"); do call; done
	;;
stream) events 2 ;;
stop) events 1 ;; # in the middle of a stream
esac
