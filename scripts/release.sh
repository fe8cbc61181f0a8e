#!/usr/bin/env bash
# Prepares a release in a clone, and tries it as a user would: from empty folders, through a
# module proxy that has only what the clone's tags hold.
#
#     scripts/release.sh v0.1.0 [folder of the clone]
#
# All modules are tagged at one commit, in which the modules beside the root require this version
# of the root and of each other. Nothing is pushed. Without a folder the clone is thrown away.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=${1:?which version? v0.1.0}
module=$(go list -m)
libraries=(policyfile adapters/{asynqthrottle,grpcthrottle,otelthrottle,promthrottle,riverthrottle,temporalthrottle} servers/envoy stores/{pgstore,sqlstore})

work=$(mktemp -d)
trap 'GOMODCACHE=$work/filled go clean -modcache; GOMODCACHE=$work/user go clean -modcache; rm -rf "$work"' EXIT
clone=${2:-$work/clone}
git clone -q . "$clone"
quiet() { sed '/^go: \(finding\|downloading\|found\|added\|upgraded\|creating\|to add\)/d'; }

# The go command asks the clone in place of the address that the module's path names.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$(cd "$clone" && pwd).insteadOf" GIT_CONFIG_VALUE_0="https://$module"
export GOWORK=off GOFLAGS=-mod=mod

# require VERSION: each module of the clone requires this version of the modules beside it, and the manifests have this version's image.
require() {
	for file in $(git -C "$clone" ls-files '*go.mod'); do
		for path in $(sed -n 's|^\t*\('"$module"'[^ ]*\) v.*|\1|p' "$clone/$file"); do
			go mod edit -require="$path@$1" "$clone/$file"
		done
	done
	sed -i.bak "s/\(ref=\|throttle:\)v[^] ]*/\1$1/" "$clone"/deploy/*/*.yaml
	rm "$clone"/deploy/*/*.yaml.bak
	git -C "$clone" diff --quiet || git -C "$clone" commit -qam "release: the modules require $1 of each other"
}

# publish QUERY [MODULE...]: the proxy has all modules, or these, at a tag or a commit. It prints the version of the last one.
publish() {
	local query=$1 found
	shift
	[ $# -gt 0 ] || set -- "$module" "${libraries[@]/#/$module/}" "$module/cmd/throttle"
	for path; do
		found=$(cd "$work" && GOPRIVATE=$module GOMODCACHE=$work/filled go mod download -json "$path@$query")
	done
	sed -n 's/.*"Version": "\(.*\)".*/\1/p' <<<"$found"
}

require "$version"
for dir in "" "${libraries[@]/%//}" cmd/throttle/; do git -C "$clone" tag -m "$dir$version" "$dir$version"; done
publish "$version" >/dev/null

# A later commit, in which every module has changed.
git clone -q "$clone" "$work/later-clone"
for dir in . "${libraries[@]}" cmd/throttle; do
	name=$(cat "$clone/$dir"/*.go | sed -n 's/^package //p' | grep -v '_test$' | head -1)
	printf 'package %s\n\nconst laterCommit = true\n\nvar _ = laterCommit\n' "$name" >"$work/later-clone/$dir/later_commit.go"
done
commit() {
	git -C "$work/later-clone" add --all
	git -C "$work/later-clone" commit -qm "$1"
	git -C "$work/later-clone" push -qf origin HEAD:refs/heads/later
	git -C "$work/later-clone" rev-parse --short=12 HEAD
}
# A proxy made of files is asked for versions and not for commits. The modules' tags are equal, and so are their later versions.
later=$(publish "$(commit "a later commit")")
"$work/later-clone/scripts/required.sh"

# A still later commit, in which policyfile uses a name of the root that the last release does not have. It compiles beside the root, and
# not for a user, until policyfile requires the commit that has the name.
printf 'package throttle\n\n// ReleaseTried is a name that no release has.\nconst ReleaseTried = true\n' >"$work/later-clone/release_tried.go"
newer=$(publish "$(commit "a new name in the root")" "$module")
printf 'package policyfile\n\nimport "%s"\n\nvar _ = throttle.ReleaseTried\n' "$module" >"$work/later-clone/policyfile/release_tried.go"
if "$work/later-clone/scripts/required.sh" policyfile >"$work/refused" 2>&1; then
	echo "release: scripts/required.sh does not see that policyfile needs a newer root" >&2 && exit 1
fi
grep -q "policyfile does NOT compile" "$work/refused"
go mod edit -require="$module@$newer" "$work/later-clone/policyfile/go.mod"
"$work/later-clone/scripts/required.sh" policyfile
needs=$(publish "$(commit "policyfile requires the root that has the name")" "$module/policyfile")
git -C "$clone" branch -qD later

# A user has a proxy and nothing else. Modules of others that this machine has need no network.
export GOPROXY="file://$work/filled/cache/download,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" GONOSUMDB=$module GOMODCACHE=$work/user

# try NAME QUERY OTHER: a program compiles that has the root at QUERY and the other modules at OTHER.
try() {
	mkdir "$work/$1"
	cd "$work/$1"
	go mod init example.com/program
	{
		echo 'package main'
		echo
		echo 'import ('
		printf '\t"%s"\n' fmt time github.com/redis/go-redis/v9 "$module" "$module/presets/github" "$module/presets/stripe" "$module/redisstore" "$module/retry"
		printf '\t_ "%s"\n' "${libraries[@]/#/$module/}"
		echo ')'
		echo 'func main() {'
		# README's first block of Go: it makes a client.
		awk '/^```go$/ { blocks++; next } /^```$/ && blocks == 1 { exit } blocks == 1' "$clone/README.md"
		echo '	fmt.Println(client != nil)'
		echo '}'
	} >main.go
	queries=("$module@$2")
	for dir in "${libraries[@]}"; do queries+=("$module/$dir@$3"); done
	go get "${queries[@]}"
	go mod tidy
	go vet .
	if grep -q 'replace' go.mod; then echo "release: $1 needed a replace" >&2 && return 1; fi
}

# alone QUERY MODULE: a program compiles that has one of the modules, and asked for no other.
alone() {
	mkdir -p "$work/alone/$1/$2"
	cd "$work/alone/$1/$2"
	go mod init example.com/program
	printf 'package main\n\nimport _ "%s"\n\nfunc main() {}\n' "$module/$2" >main.go
	go get "$module/$2@$1"
	go vet .
}

# install QUERY: the command from an empty folder, outside any module.
install() {
	mkdir -p "$work/bin" "$work/empty"
	(cd "$work/empty" && GOFLAGS= GOBIN=$work/bin go install "$module/cmd/throttle@$1")
	"$work/bin/throttle" check "$clone/policyfile/testdata/good.yaml" >/dev/null
}

(try tagged "$version" "$version") 2>&1 | quiet
(try all-later "$later" "$later") 2>&1 | quiet
(try older-modules "$later" "$version") 2>&1 | quiet
(try older-root "$version" "$later") 2>&1 | quiet
for dir in "${libraries[@]}"; do
	(alone "$version" "$dir") 2>&1 | quiet
	(alone "$later" "$dir") 2>&1 | quiet
done
(alone "$needs" policyfile) 2>&1 | quiet
install "$version" 2>&1 | quiet
install "$later" 2>&1 | quiet
echo "release: a program, each module alone and the command use $version and a later commit, and a program both together, from a proxy; tags in the clone:"
git -C "$clone" tag --points-at HEAD | sed 's/^/	/'
