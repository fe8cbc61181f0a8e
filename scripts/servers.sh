#!/bin/sh
# Runs the tests of redisstore, as make test has them, with each Redis and Valkey that Debian packages, and
# writes what came of it to docs/measurements/servers.txt and into docs/run/redis.md. It needs root,
# debootstrap, 1.1 GB, and about two minutes for each server. It changes nothing but a folder, which it
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
page=docs/run/redis.md

# Which release of Debian the server's libraries are of, which one the server, and which package.
servers='bookworm bookworm redis-server
bookworm bookworm-backports valkey-server
trixie trixie redis-server
trixie trixie valkey-server
sid sid redis-server
sid sid valkey-server
sid experimental redis-server'

found debootstrap || apt_install debootstrap </dev/null >&2

# install_server puts a package of a suite, and what it needs beside a release, into a folder of its own. No program of
# the packages is run but the server.
install_server() {
	release=$1 suite=$2 package=$3
	root=$roots/$release files=$roots/$suite-$package
	[ -x "$files/run" ] && return
	if [ ! -e "$root/.whole" ]; then
		mkdir -p "$root"
		debootstrap --variant=minbase "$release" "$root"
		touch "$root/.whole"
	fi
	if [ "$suite" != "$release" ]; then
		sed "s/ $release / $suite /" "$root/etc/apt/sources.list" >"$root/etc/apt/sources.list.d/$suite.list"
	fi
	# A mirror may lag: packages are signed, and an old one will do.
	chroot "$root" apt-get -o Acquire::Check-Valid-Until=false update
	chroot "$root" apt-get clean
	chroot "$root" apt-get install -y --no-install-recommends --download-only -t "$suite" "$package"
	rm -f "$root/etc/apt/sources.list.d/$suite.list"
	mkdir -p "$files"
	for deb in "$root"/var/cache/apt/archives/*.deb; do
		dpkg-deb -x "$deb" "$files"
	done
	dpkg-deb -f "$root/var/cache/apt/archives/$package"_*.deb Version >"$files/version"
	# The server runs in the folder of its test, with the libraries of its release.
	libraries=$(echo "$files"/usr/lib/*-linux-gnu):$(echo "$root"/usr/lib/*-linux-gnu)
	printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' "$root"/usr/lib/*-linux-gnu/ld-linux-* "$libraries" "$files/usr/bin/$package" >"$files/run"
	chmod 755 "$files/run"
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
	server=$roots/$suite-$package
	title=$("$server/run" --version | sed 's/.* v=\([0-9.]*\).*/\1/')
	case $package in redis*) title="Redis $title" ;; *) title="Valkey $title" ;; esac
	say "$title of $suite"
	REDIS_SERVER=$server/run go test -vet=off -short -count=1 -timeout 20m -json ./redisstore/... </dev/null >"$out" || status=1
	count() { grep "\"Action\":\"$1\"" "$out" | grep -c '"Test":' || true; }
	line="$title | $suite, $(cat "$server/version") | $(date -u +%Y-%m-%d) | $(git rev-parse --short HEAD) | $(count pass) passed, $(count fail) failed"
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

# The page has the servers of the results.
awk -v results="$results" '
	/<!-- servers -->/ { print; print ""
		while ((getline line <results) > 0) { split(line, cells, " [|] "); list = list (list ? ", " : "") cells[1] }
		print "**Tested**: " list "."
		print ""; skip = 1 }
	/<!-- end of servers -->/ { skip = 0 }
	!skip { print }' "$page" >"$out.new"
cat "$out.new" >"$page"
exit "$status"
