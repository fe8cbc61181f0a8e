#!/usr/bin/env bash
# Builds the downloads of a release into a folder: the command for Linux, macOS and Windows, checksums, a list of its modules
# (an SBOM, as CycloneDX), a formula of Homebrew that has the checksums, and the notes with links that a release's page can follow.
#
#     scripts/binaries.sh v0.1.0 dist
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=${1:?which version? v0.1.0}
mkdir -p "${2:?into which folder?}"
out=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Archives of one commit are meant to be equal to the byte: no path of the machine, and the time of the commit.
time=$(git log -1 --format=%ct)
for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64; do
	GOOS=${platform%/*} GOARCH=${platform#*/}
	name=throttle_${version#v}_${GOOS}_$GOARCH
	program=throttle
	[ "$GOOS" = windows ] && program=throttle.exe

	mkdir "$work/$name"
	# Without timetzdata the program would not know the zones of calendar windows on a machine without them.
	GOOS=$GOOS GOARCH=$GOARCH CGO_ENABLED=0 go build -C cmd/throttle -trimpath -tags timetzdata -ldflags "-s -X main.release=$version" -o "$work/$name/$program" .
	cp LICENSE cmd/throttle/README.md "$work/$name"
	tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" -cf - "$name" | gzip -n >"$out/$name.tar.gz"
	echo "built $name.tar.gz"
done

go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 bin -json -noserial -version "$version" -output "$work/sbom" "$work/throttle_${version#v}_linux_amd64/throttle"
# The workspace's modules are named by their folders there, and have no version.
sed "s|\.\./\.\.|github.com/fleetthrottle/throttle|g; s|(devel)|$version|g" "$work/sbom" >"$out/throttle_${version#v}.cdx.json"

(cd "$out" && sha256sum throttle_"${version#v}"* >checksums.txt)

sum() { sed -n "s/  throttle_${version#v}_$1.tar.gz//p" "$out/checksums.txt"; }
cat >"$out/throttle.rb" <<FORMULA
class Throttle < Formula
  desc "Keep a fleet of programs within the rate limits of third-party APIs"
  homepage "https://github.com/fleetthrottle/throttle"
  version "${version#v}"
  license "MIT"

  on_macos do
    on_arm do
      url "https://github.com/fleetthrottle/throttle/releases/download/$version/throttle_${version#v}_darwin_arm64.tar.gz"
      sha256 "$(sum darwin_arm64)"
    end
    on_intel do
      url "https://github.com/fleetthrottle/throttle/releases/download/$version/throttle_${version#v}_darwin_amd64.tar.gz"
      sha256 "$(sum darwin_amd64)"
    end
  end

  on_linux do
    on_arm do
      url "https://github.com/fleetthrottle/throttle/releases/download/$version/throttle_${version#v}_linux_arm64.tar.gz"
      sha256 "$(sum linux_arm64)"
    end
    on_intel do
      url "https://github.com/fleetthrottle/throttle/releases/download/$version/throttle_${version#v}_linux_amd64.tar.gz"
      sha256 "$(sum linux_amd64)"
    end
  end

  def install
    bin.install "throttle"
  end

  test do
    assert_match "throttle $version", shell_output("#{bin}/throttle --version")
  end
end
FORMULA
# The notes' links are relative to docs/releases. A page of releases is elsewhere.
tree=https://github.com/fleetthrottle/throttle/blob/$version
notes=docs/releases/$version.md
[ ! -e "$notes" ] || sed "s|](\.\./\.\./|]($tree/|g; s|](\.\./|]($tree/docs/|g" "$notes" >"$out/notes.md"

# What was built is tried, as far as this machine can.
(cd "$out" && sha256sum --check --quiet checksums.txt)
native=$work/throttle_${version#v}_$(go env GOOS)_$(go env GOARCH)/throttle
[ ! -e "$native" ] || "$native" --version | grep -F "throttle $version"
[ "$(grep -cE '^ +sha256 "[0-9a-f]{64}"$' "$out/throttle.rb")" = 4 ]
for module in "" /adapters/promthrottle /cmd/throttle /policyfile /servers/envoy; do
	grep -qF "\"purl\": \"pkg:golang/github.com/fleetthrottle/throttle$module@$version?" "$out/throttle_${version#v}.cdx.json"
done
! command -v ruby >/dev/null || ruby -c "$out/throttle.rb"
if grep -sE '\]\(\.' "$out/notes.md"; then echo "binaries: links of the notes lead nowhere on a release's page" >&2 && exit 1; fi
echo "binaries: $(ls "$out" | wc -l) files in $2"
