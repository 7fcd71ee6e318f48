#!/usr/bin/env bash
# Installs the Debian package in a root file system of Debian 13, and runs the end-to-end tests and the tour
# with the installed program, whose nodes run as weir.service runs them. Prints `N passed, N failed` as its
# last line. Needs root, and the packages of Debian 13. Leaves nothing behind: its mounts, network namespaces
# and processes are in namespaces of its own. WEIR_DEB names a package to test instead of one of these
# sources, and WEIR_IMAGE_BASE a folder that keeps the Debian system for a later run.
# Usage: installed-test.sh [ARGUMENT OF VITEST...]
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" != inside ]; then
  bash scripts/setup.sh --test
  bash scripts/setup.sh --release
  work=$(mktemp -d)
  # A terminated test also ends what runs in its namespaces.
  trap 'kill -KILL "$test" 2>/dev/null || true; wait || true; rm -rf "$work"' EXIT
  trap 'exit 143' TERM INT
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) setpriv --pdeathsig KILL \
    unshare --mount --pid --fork --kill-child --mount-proc bash "$0" inside "$work" "$@" &
  test=$!
  wait "$test"
  exit
fi
work=$2
shift 2
say() { echo "installed-test: $*"; }
# Usage: finished TEXT COMMAND...: ends the test with the output of the command if it fails.
finished() {
  local begin=$SECONDS
  "${@:2}" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
  say "$1 in $((SECONDS - begin)) s"
}

deb=${WEIR_DEB:-}
if [ -z "$deb" ]; then
  make_package() {
    bash scripts/release/copy-sources.sh "$work/sources"
    bash "$work/sources/scripts/release.sh" "$work/release" deb
    rm -rf "$work/sources"
  }
  finished 'made the Debian package' make_package
  deb=$(ls "$work"/release/*.deb)
fi
root=$work/debian
make_root() {
  local base=${WEIR_IMAGE_BASE:-$root}
  [ -e "$base" ] || bash scripts/release/debian-rootfs.sh trixie "$base"
  [ "$base" = "$root" ] || cp -a "$base" "$root"
}
finished 'made the root file system of Debian 13' make_root

# The tests find the files of ended processes by process ids, which are of a namespace of this test. So the
# test has its own /run, BPF file system and temporary folder.
mount -t tmpfs tmpfs /run
mount --make-shared /run
mount -t bpf -o mode=700 bpf /sys/fs/bpf # as systemd does
export TMPDIR=$work/tmp
chmod 711 "$work"
mkdir -p "$TMPDIR" "$root$TMPDIR"
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /run "$root/run"
cp "$deb" scripts/release/as-unit.sh "$root/opt"
install_package() {
  DEBIAN_FRONTEND=noninteractive chroot "$root" env -u TMPDIR apt-get -y -qq -o APT::Sandbox::User=root --no-install-recommends \
    install "/opt/${deb##*/}"
}
finished 'installed the Debian package' install_package
chroot "$root" systemd-analyze --no-pager syscall-filter >"$work/groups" 2>"$work/log"
python3 scripts/release/syscall-filter.py "$root/usr/lib/systemd/system/weir.service" <"$work/groups" >"$root/opt/syscall-filter"
say "$(chroot "$root" dpkg-query -W weir nodejs | tr '\t\n' '  ')"
# The unit has ProtectSystem=strict.
mount -o remount,bind,ro "$root"
mount --bind "$TMPDIR" "$root$TMPDIR"

printf '#!/bin/sh\nWEIR_COMMAND=/opt/as-unit.sh exec chroot %s /opt/as-unit.sh "$@"\n' "$root" >"$work/weir"
chmod 755 "$work/weir"
WEIR_COMMAND=$work/weir bash scripts/test.sh --mode installed "$@"
