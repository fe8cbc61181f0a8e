#!/bin/sh
# Runs the tests of redisstore, as make test has them, with each Redis and Valkey that Debian packages, and
# writes what came of it to docs/measurements/servers.txt and into the table of docs/redis.md. It needs root,
# debootstrap, half a gigabyte, and about three minutes for each server. It changes nothing but a folder, which it
# keeps, and starts no service.
#
#     scripts/servers.sh              # all servers
#     scripts/servers.sh valkey sid   # those whose line below has both words; the others keep their lines
set -eu

cd "$(dirname "$0")/.."
name=servers
. scripts/packages.sh

roots=${THROTTLE_SERVERS:-${XDG_CACHE_HOME:-$HOME/.cache}/throttle-servers}
results=docs/measurements/servers.txt
page=docs/redis.md

# Which release of Debian the server's libraries are of, which one the server, and which package.
servers='bookworm bookworm redis-server
bookworm bookworm-backports valkey-server
trixie trixie redis-server
trixie trixie valkey-server
sid sid redis-server
sid sid valkey-server
sid experimental redis-server'

found debootstrap || apt_install debootstrap </dev/null >&2

# install_server puts a package of a suite into the root of a release, and prints the path of a copy that
# the next package leaves alone.
install_server() {
	release=$1 suite=$2 package=$3
	root=$roots/$release copy=$roots/bin/$suite/$package
	[ -x "$copy" ] && [ -x "$copy.run" ] && return
	if [ ! -e "$root/.whole" ]; then
		mkdir -p "$root"
		debootstrap --variant=minbase "$release" "$root"
		printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # no service starts
		chmod 755 "$root/usr/sbin/policy-rc.d"
		touch "$root/.whole"
	fi
	sed "s/ $release / $suite /" "$root/etc/apt/sources.list" >"$root/etc/apt/sources.list.d/$suite.list"
	chroot "$root" apt-get update
	chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -t "$suite" "$package"
	rm "$root/etc/apt/sources.list.d/$suite.list"
	mkdir -p "$roots/bin/$suite"
	cp -L "$root/usr/bin/$package" "$copy"
	chroot "$root" dpkg-query -W -f '${Version}' "$package" >"$copy.version"
	# The server runs in the folder of its test, with the libraries of its release.
	libraries=$(echo "$root"/usr/lib/*-linux-gnu)
	printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' "$libraries"/ld-linux-* "$libraries" "$copy" >"$copy.run"
	chmod 755 "$copy.run"
}

# matches reports whether a line has all words.
matches() {
	line=$1
	shift
	for word; do
		case $line in *"$word"*) ;; *) return 1 ;; esac
	done
}

out=$(mktemp)
trap 'rm -f "$out" "$out.new"' EXIT
status=0
while read -r release suite package; do
	if ! matches "$release $suite $package" "$@"; then
		continue
	fi
	install_server "$release" "$suite" "$package" </dev/null >&2
	server=$roots/bin/$suite/$package
	title=$("$server.run" --version | sed 's/.* v=\([0-9.]*\).*/\1/')
	case $package in redis*) title="Redis $title" ;; *) title="Valkey $title" ;; esac
	say "$title of $suite"
	REDIS_SERVER=$server.run go test -vet=off -short -count=1 -timeout 20m -json ./redisstore/... </dev/null >"$out" || status=1
	count() { grep "\"Action\":\"$1\"" "$out" | grep -c '"Test":' || true; }
	line="$title | $suite, $(cat "$server.version") | $(date -u +%Y-%m-%d) | $(git rev-parse --short HEAD) | $(count pass) passed, $(count fail) failed"
	# The line takes the place of the one of the same suite and package.
	touch "$results"
	grep -v "^${title%% *} [0-9.]* | $suite, " "$results" >"$out.new" || true
	echo "$line" >>"$out.new"
	sort "$out.new" >"$results"
	say "$line"
	grep '"Action":"fail"' "$out" | sed -n 's/.*"Test":"\([^"]*\)".*/failed: \1/p' >&2 || true
done <<END
$servers
END

# The table is the lines of the results.
awk -v results="$results" '
	/<!-- servers -->/ { print; print ""; print "| server | Debian | tested | commit | tests |"; print "| --- | --- | --- | --- | --- |"
		while ((getline line <results) > 0) print "| " line " |"
		print ""; skip = 1 }
	/<!-- end of servers -->/ { skip = 0 }
	!skip { print }' "$page" >"$out.new"
cat "$out.new" >"$page"
exit "$status"
