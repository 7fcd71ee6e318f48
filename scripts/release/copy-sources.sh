#!/usr/bin/env bash
# Copies the sources, with the npm packages, into a new folder without Git. Usage: copy-sources.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir "$1"
git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from=- | tar --extract --directory="$1"
cp -al node_modules "$1" 2>/dev/null || cp -a node_modules "$1"
ln -s "$PWD/.node" "$1/.node"
