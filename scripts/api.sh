#!/usr/bin/env bash
# Compares what the modules export with the last release: the last tag v* before
# this commit. It fails if something has changed so that programs may not compile
# any more, and CHANGELOG.md does not say so: its name must stand under "Changed"
# or "Removed" of what has changed since that release. From v1 on it always fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! tag=$(git describe --tags --abbrev=0 --match 'v*' --exclude '*-*' 2>/dev/null); then
	echo "api: there is no tag v* to compare with"
	exit 0
fi
apidiff=$(go tool -modfile=internal/tools/go.mod -n apidiff)

# The same folder each time, so that Go's build cache knows it. Below .git, so that
# nothing takes its modules for those of the repository.
old=$(git rev-parse --absolute-git-dir)/api
rm -rf "$old"
trap 'rm -rf "$old"' EXIT
mkdir "$old"
git archive "$tag" | tar -x -C "$old"

# Users import neither commands and examples nor what only tests. A module that the
# release did not have breaks nobody.
: >"$old/changes"
for dir in . adapters/asynqthrottle adapters/grpcthrottle adapters/otelthrottle stores/pgstore policyfile adapters/promthrottle adapters/riverthrottle servers/envoy stores/sqlstore adapters/temporalthrottle; do
	[ -f "$old/$dir/go.mod" ] || continue
	module=$(cd "$dir" && go list -m)
	(cd "$old/$dir" && "$apidiff" -m -w "$old/old.api" "$module")
	(cd "$dir" && "$apidiff" -m -w "$old/new.api" "$module")
	"$apidiff" -m -incompatible "$old/old.api" "$old/new.api" >"$old/found" 2>"$old/log" || { cat "$old/log" >&2; exit 1; }
	# "New" and "./pushed.Follow" of a module beside the root: which one must be seen.
	if [ "$dir" = . ]; then cat "$old/found"; else sed "s|^- \./|- ./$dir/|; t; s|^- |- ./$dir.|" "$old/found"; fi >>"$old/changes"
done
changes=$(sed -n 's/^- //p' "$old/changes" | grep -Ev "^\./examples\b" || true)

# What CHANGELOG.md says since the tag, under headings that tell of such changes.
said=$(awk -v last="## [${tag#v}]" '
	index($0, last) == 1 { found = 1; exit }
	/^##/ { on = /^### (Changed|Removed)/ }
	on
	END { if (!found) exit 1 }
' CHANGELOG.md) || { echo "api: CHANGELOG.md has no section [${tag#v}]"; exit 1; }

failed=0
while IFS= read -r change; do
	[ -n "$change" ] || continue
	# "./memstore.(*Store).Book: removed" is about the name Book.
	name=${change%%: *}
	name=${name##*[./ ]}
	name=${name%%[^[:alnum:]_]*}
	if [[ $tag == v0.* ]] && grep -qw -e "$name" <<<"$said"; then
		echo "api: in CHANGELOG.md: $change"
	else
		echo "api: NOT in CHANGELOG.md: $change"
		failed=1
	fi
done <<<"$changes"
if [ "$failed" = 0 ]; then
	echo "api: compatible with $tag, but for what CHANGELOG.md says"
fi
exit "$failed"
