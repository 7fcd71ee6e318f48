#!/usr/bin/env bash
# Makes the npm package from the tree. npm installs the packages of node_modules by npm-shrinkwrap.json.
# Usage: npm.sh STAGE VERSION FOLDER
set -euo pipefail
stage=$1 version=$2 out=$3
tar --create --directory="$stage" --exclude=./node_modules --sort=name --owner=0 --group=0 --numeric-owner \
  --mtime="@$SOURCE_DATE_EPOCH" --format=ustar --transform='s,^\.,package,' . | gzip -n9 >"$out/weir-$version.tgz"
