#!/usr/bin/env bash
# Prepares a release in a clone, and tries it as a user would: from empty folders, through a
# module proxy that has what the tags hold.
#
#     scripts/release.sh v0.1.0 [folder of the clone]
#
# The clone gets the root's tag, and behind it a commit and a tag for each module beside the
# root, without replace and with the requirement of this version. Nothing is pushed. Without
# a folder the clone is thrown away.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=${1:?which version? v0.1.0}
module=$(go list -m)
# A module stands behind those that it requires.
beside=(policyfile adapters/asynqthrottle adapters/grpcthrottle adapters/otelthrottle adapters/promthrottle adapters/riverthrottle stores/pgstore stores/sqlstore adapters/temporalthrottle cmd/throttle)

work=$(mktemp -d)
trap 'GOMODCACHE=$work/filled go clean -modcache; GOMODCACHE=$work/user go clean -modcache; rm -rf "$work"' EXIT
clone=${2:-$work/clone}
git clone -q . "$clone"

# The go command asks the clone in place of the address that the module's path names.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$(cd "$clone" && pwd).insteadOf" GIT_CONFIG_VALUE_0="https://$module"
export GOWORK=off GOFLAGS=-mod=mod

(
	export GOPRIVATE=$module GOMODCACHE=$work/filled
	cd "$clone"
	git tag -m "$version" "$version"
	for dir in "${beside[@]}"; do
		(
			cd "$dir"
			for path in $(go mod edit -json | sed -n 's/^\t\t\t"Path": "\('"${module//\//\\/}"'[^"]*\)".*/\1/p' | sort -u); do
				go mod edit -dropreplace="$path" -require="$path@$version"
			done
			go mod tidy
			if grep -n 'replace' go.mod; then
				echo "release: $dir/go.mod still replaces a module" >&2
				exit 1
			fi
		)
		git commit -q -m "$dir: require $version" "$dir/go.mod" "$dir/go.sum"
		git tag -m "$dir $version" "$dir/$version"
		go mod download "$module/$dir@$version"
	done
	go mod download "$module@$version"
) 2>&1 | sed '/^go: \(finding\|downloading\|found\)/d'

# A user has a proxy and nothing else.
export GOPROXY="file://$work/filled/cache/download,$(go env GOPROXY)" GONOSUMDB=$module GOMODCACHE=$work/user
mkdir "$work/program" "$work/bin"
(
	cd "$work/program"
	go mod init example.com/program
	{
		echo 'package main'
		echo
		echo 'import ('
		printf '\t"%s"\n' fmt time github.com/redis/go-redis/v9 "$module" "$module/presets/github" "$module/presets/stripe" "$module/redisstore" "$module/retry"
		printf '\t_ "%s"\n' "$module/adapters/asynqthrottle" "$module/adapters/grpcthrottle" "$module/adapters/otelthrottle" "$module/policyfile" "$module/stores/pgstore" "$module/adapters/promthrottle" "$module/adapters/riverthrottle" "$module/stores/sqlstore" "$module/adapters/temporalthrottle"
		echo ')'
		echo 'func main() {'
		# README's first block of Go: it makes a client.
		awk '/^```go$/ { blocks++; next } /^```$/ && blocks == 1 { exit } blocks == 1' "$OLDPWD/README.md"
		echo '	fmt.Println(client != nil)'
		echo '}'
	} >main.go
	go get "$module@$version" "$module/adapters/asynqthrottle@$version" "$module/adapters/riverthrottle@$version" "$module/adapters/grpcthrottle@$version" "$module/adapters/otelthrottle@$version" "$module/stores/pgstore@$version" "$module/policyfile@$version" "$module/adapters/promthrottle@$version" "$module/stores/sqlstore@$version" "$module/adapters/temporalthrottle@$version"
	go mod tidy
	go vet .
	GOFLAGS= GOBIN=$work/bin go install "$module/cmd/throttle@$version"
) 2>&1 | sed '/^go: \(finding\|downloading\|found\|added\|creating\)/d'
"$work/bin/throttle" check policyfile/testdata/good.yaml >/dev/null
echo "release: a program and the command use $version from a proxy; tags in the clone:"
git -C "$clone" tag --points-at "$version" | sed 's/^/	/'
for dir in "${beside[@]}"; do echo "	$dir/$version"; done
