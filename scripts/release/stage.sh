#!/usr/bin/env bash
# Makes the tree that all artefacts contain: all files that a node, the command and the tour need, without
# sources, tests and source maps. Usage: stage.sh FOLDER VERSION
set -euo pipefail
cd "$(dirname "$0")/../.."
stage=$1 version=$2

for object in weir weir_ipv6 third_party_hooks; do
  if [ ! -e "dist/bpf/$object.bpf.o" ]; then
    echo "release: dist/bpf/$object.bpf.o is missing: run npm run setup" >&2
    exit 1
  fi
done
mkdir -p "$stage"/dist/node "$stage"/dist/bpf "$stage"/dist/console
cp -r bin LICENSE CHANGELOG.md SECURITY.md schemas examples deploy docs "$stage"
rm -r "$stage/deploy/debian"
cp dist/bpf/*.o "$stage/dist/bpf"
# A node serves only the compressed files of the console.
(cd dist/console && find . -name '*.gz' -exec cp --parents {} "$(realpath "$stage")/dist/console" \;)
# The code caches depend on the version of Node.js, and their bytes are not reproducible.
for file in dist/node/*; do
  case "$file" in
    *.map | *.cache) ;;
    *.js) sed '/^\/\/# sourceMappingURL=/d' "$file" >"$stage/$file" ;;
    *) cp "$file" "$stage/$file" ;;
  esac
done
node --conditions=weir-source --import tsx scripts/release/stage-npm.ts "$stage" "$version"
find "$stage" -type d -empty -delete
bash scripts/release/same-attributes.sh "$stage"
chmod 755 "$stage/bin/weir.js"
