#!/bin/sh
# Builds the site from the Markdown of the repository, and looks at it in a browser.
#
#     scripts/site.sh                         # into internal/site/dist
#     scripts/site.sh --base /throttle/       # for a server that has it below a path
#
# It needs Node 20 or later, installs what internal/site/package-lock.json names, and looks with the
# browser of make browser.
set -eu

name=site
. "$(dirname "$0")/packages.sh"
cd "$(dirname "$0")/../internal/site"

found npm || { say "this machine lacks npm: Debian and Ubuntu have it in the package npm"; exit 1; }
npm_install . >&2

node build.mjs "$@"
# A site below a path is the same site; the browser looks at the plain one.
[ $# -gt 0 ] || node look.mjs
