#!/usr/bin/env bash
# Makes the artefacts of a release in a folder (default: release/) from one tree of files:
#   weir-VERSION.tgz        for npm
#   weir_VERSION_ARCH.deb   for Debian 12 and 13
#   weir-VERSION-oci.tar    a container image, as an archive of an OCI image layout
#   weir-VERSION.cdx.json   the software bill of materials of the first two (CycloneDX), and
#   weir-VERSION-oci.cdx.json   that of the image
#   SHA256SUMS, and SHA256SUMS.minisig if WEIR_SIGNING_KEY is the file of a minisign key
# The same commit gives the same bytes. WEIR_VERSION replaces the version of package.json.
# Usage: scripts/release.sh [FOLDER [npm | deb | image]...]
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C TZ=UTC
umask 022

out=$(mkdir -p "${1:-release}" && cd "${1:-release}" && pwd)
parts=("${@:2}")
[ "${#parts[@]}" -gt 0 ] || parts=(npm deb image)
version=${WEIR_VERSION:-$(node -p 'require("./package.json").version')}
# All files have the time of the last commit.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

# The artefacts name the commit by its time, and must contain its files. A copy without Git is built as it is.
if [ -e .git ] && [ -n "$(git status --porcelain)" ]; then
  git status --short
  echo 'release: the files differ from the last commit: commit or remove these changes' >&2
  exit 1
fi
# An older build can contain code of other commits.
rm -rf dist
bash scripts/setup.sh --release
rm -f "$out"/weir[-_]* "$out"/SHA256SUMS*
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bash scripts/release/stage.sh "$work/stage" "$version"
node --conditions=weir-source --import tsx scripts/release/sbom.ts "$version" "$out/weir-$version.cdx.json"
for part in "${parts[@]}"; do bash "scripts/release/$part.sh" "$work/stage" "$version" "$out"; done

(cd "$out" && sha256sum weir[-_]* >SHA256SUMS)
if [ -n "${WEIR_SIGNING_KEY:-}" ]; then
  minisign -S -s "$WEIR_SIGNING_KEY" -m "$out/SHA256SUMS" -t "weir $version"
else
  echo 'release: not signed: WEIR_SIGNING_KEY names no minisign key'
fi
(cd "$out" && ls -l)
