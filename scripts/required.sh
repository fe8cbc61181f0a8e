#!/usr/bin/env bash
# Compiles each released module beside the root with the versions that its go.mod requires of the root and of the other modules,
# which is what "go get MODULE@COMMIT" gives to a user. The repository's own builds take the folders beside it instead.
#
#     scripts/required.sh               # all of them
#     scripts/required.sh policyfile    # these folders
#
# A module that needs a newer root than the last release requires a commit: the root's change is one commit, and a later commit has
# "go get ROOT@COMMIT" in the module. The next release raises the requirement to its version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

module=$(go list -m)
# One folder each time, so that Go's build cache knows it. Below .git, so that nothing takes its modules for those of the repository.
work=$(git rev-parse --absolute-git-dir)/required
rm -rf "$work"
trap 'rm -rf "$work"' EXIT
mkdir "$work"
export GOWORK=off

# extract VERSION: the repository at a tag, or at the commit that a pseudo-version ends with. Only a tag may be missing: it fails then.
extract() {
	local commit="refs/tags/$1"
	[[ ! $1 =~ [-.][0-9]{14}-([0-9a-f]{12})$ ]] || commit=${BASH_REMATCH[1]}
	[ ! -d "$work/$1" ] || return 0
	case $commit in refs/*) git rev-parse --quiet --verify "$commit" >/dev/null || return 1 ;; esac
	mkdir "$work/$1"
	git archive "$commit" | tar -x -C "$work/$1" || exit
}

if [ $# -eq 0 ]; then
	mapfile -t modules < <(git ls-files '*/go.mod' | grep -vE '^internal/|/(browsertest|promql)/|/testdata/' | xargs -n 1 dirname)
	set -- "${modules[@]}"
fi

failed=0 untagged=
for dir; do
	cp "$dir/go.mod" "$work/go.mod"
	cp "$dir/go.sum" "$work/go.sum"

	requires=
	while read -r path version; do
		if ! extract "$version"; then
			untagged=$version
			continue 2
		fi
		folder=$work/$version${path#"$module"}
		requires="$requires ${path#"${module%/*}/"}@$version"
		go mod edit -replace="$path=$folder" "$work/go.mod"
	done < <(sed -n 's|^\(require\)\{0,1\}[[:space:]]*\('"$module"'[^ ]*\) \(v[^ ]*\).*|\2 \3|p' "$dir/go.mod")

	if ! (cd "$dir" && go build -mod=mod -modfile="$work/go.mod" -o /dev/null ./...); then
		echo "required: $dir does NOT compile with$requires"
		failed=1
	fi
done
if [ -n "$untagged" ]; then
	echo "required: there is no tag $untagged to compile with"
elif [ "$failed" = 0 ]; then
	echo "required: each module compiles with the versions that it requires"
fi
exit "$failed"
