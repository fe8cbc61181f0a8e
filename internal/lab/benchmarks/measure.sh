#!/bin/sh
# Measures everything, or the parts that are named. Everything takes about twelve
# minutes, and the machine should have nothing else to do.
#
#     internal/lab/benchmarks/measure.sh
#     LOAD=60s internal/lab/benchmarks/measure.sh fleet
#
# A part is a file in results.
set -eu

cd "$(dirname "$0")"
month=$(date +%Y-%m)
redis=${REDIS_SERVER:-redis-server}

# part NAME FLAG... runs one part. What it prints is only kept if it succeeds.
part() {
	file=results/$month-$1.txt
	shift
	{
		echo "date: $(date +%F)"
		echo "commit: $(git rev-parse --short HEAD)"
		echo "go: $(go env GOVERSION)"
		echo "redis: $("$redis" --version | sed 's/.*v=\([^ ]*\).*/\1/'), on loopback, sharing the cores"
		echo "machine: $(getconf _NPROCESSORS_ONLN) cores"
		echo "command: go test -run '^\$' -timeout 30m . $*"
		go test -run '^$' -timeout 30m . "$@"
	} >"$file.new" || {
		cat "$file.new" >&2
		rm "$file.new"
		exit 1
	}
	mv "$file.new" "$file"
	echo "$file"
}

for name in ${*:-local transport answer binding memory shared preset sizing upstream fleet}; do
	case $name in
	local) part local -bench 'Local|Limiters' -benchtime 300ms -count 10 ;;
	transport) part transport -bench Transport -benchtime 300ms -count 10 ;;
	answer) part answer -bench Answer -benchtime 300ms -count 5 ;;
	binding) part binding -bench Binding -benchtime 1x -everyone -load "${LOAD:-5s}" ;;
	memory) part memory -bench Memory -benchtime 1x ;;
	shared) part shared -bench Shared -benchtime 1x -rounds "${ROUNDS:-4}" -turn "${TURN:-1s}" ;;
	preset) part preset -bench Preset -benchtime 1x -rounds "${ROUNDS:-4}" -turn "${TURN:-1s}" ;;
	sizing) part sizing -bench Sizing -benchtime 1x -fleetload "${LOAD:-20s}" ;;
	upstream) part upstream -bench Upstream -benchtime 1x -everyone -load "${LOAD:-12s}" ;;
	fleet) part fleet -bench Fleet -benchtime 1x -everyone -load "${LOAD:-16s}" ;;
	*)
		echo "no such part: $name" >&2
		exit 2
		;;
	esac
done
