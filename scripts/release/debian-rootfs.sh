#!/usr/bin/env bash
# Installs a small Debian system with the packages that the container image uses.
# Usage: debian-rootfs.sh SUITE FOLDER
set -euo pipefail
mmdebstrap --quiet --variant=apt --skip=cleanup/apt/lists --include=ca-certificates,iproute2,libbpf1,librocksdb9.10,libstdc++6,nftables \
  "$1" "$2.new" http://deb.debian.org/debian "deb http://deb.debian.org/debian-security $1-security main"
mv "$2.new" "$2"
