#!/usr/bin/env bash
# Does what package-test.sh does, in a container on the kernel of this machine: systemd of Debian 13 with its
# own network, processes, mounts, control groups and BPF file system. So it takes minutes, and not an hour.
# It does not show how Debian's kernel and a whole boot behave, which package-test.sh does. Prints
# `N passed, N failed` as its last line.
#   scripts/package-container.sh [A.deb B.deb]  tests these packages; else builds both from this tree
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."

# A container of its own for each boot: pivots into ROOT, and becomes its systemd.
if [ "${1:-}" = systemd ]; then
  root=$2
  mount --bind "$root" "$root"
  cd "$root"
  mount -t proc proc proc
  mount -t sysfs sysfs sys
  mount -t cgroup2 cgroup2 sys/fs/cgroup
  mount -t bpf -o mode=700 bpf sys/fs/bpf # systemd mounts it so on a machine, and not in a container
  for folder in dev run tmp; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
  chmod 1777 tmp
  for device in '3 null' '5 zero' '7 full' '8 random' '9 urandom'; do mknod -m 666 "dev/${device#* }" c 1 "${device% *}"; done
  mknod -m 666 dev/tty c 5 0
  mkdir dev/pts dev/shm
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts dev/pts
  ln -s pts/ptmx dev/ptmx
  ln -s /proc/self/fd dev/fd
  mount -t tmpfs tmpfs dev/shm
  hostname gateway
  pivot_root . mnt
  umount -l mnt
  exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /sbin/init
fi

[ "${1:-}" = inside ] || bash scripts/setup.sh --package-test
source scripts/package-test-root.sh
if [ "${1:-}" != inside ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  if [ $# = 2 ]; then packages=("$1" "$2"); else build_packages "$work"; fi
  make_root "$work" "${packages[@]}"
  mkdir "$work/root/etc/systemd/system/package-test-network.service.d"
  printf '[Service]\nStandardOutput=journal\nStandardError=journal\n' >"$work/root/etc/systemd/system/package-test-network.service.d/container.conf"
  # The devices and modules are those of this machine.
  for unit in systemd-udevd.service systemd-udev-trigger.service systemd-modules-load.service getty.target; do
    ln -sf /dev/null "$work/root/etc/systemd/system/$unit"
  done
  unshare --mount --pid --fork --kill-child --mount-proc bash "$0" inside "$work"
  exit
fi
work=$2
groups=$work/groups
mkdir "$groups"
mount -t cgroup2 cgroup2 "$groups"
group=$groups/weir-package-test.$$
# The end of the container is that of a power failure: no unit is stopped.
stop() {
  [ -z "${container:-}" ] || { kill -KILL "$container" && wait "$container" 2>/dev/null || true; }
  container=
  for _ in {1..50}; do
    [ -d "$group" ] || return 0
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && return 0
    sleep 0.1
  done
}
trap stop EXIT
# Usage: boot PART: boots the container, and runs this part of scripts/package-test-guest.sh in it.
boot() {
  local began=$SECONDS systemd
  mkdir "$group"
  (echo "$BASHPID" >"$group/cgroup.procs" && exec unshare --pid --mount --net --uts --ipc --cgroup --fork --kill-child \
    --mount-proc bash scripts/package-container.sh systemd "$work/root") >"$work/console" 2>&1 &
  container=$!
  inside() { env -i nsenter --target "$systemd" --pid --mount --net --uts --ipc --cgroup "$@"; }
  for _ in {1..300}; do
    systemd=$(pgrep -P "$container") && inside systemctl is-active --quiet multi-user.target 2>/dev/null && break
    sleep 0.1
  done
  inside /srv/package-test-guest.sh "$1" || image_failed "boot '$1' failed: $(tail -20 "$work/console")"
  stop
  echo "package-test: boot '$1' took $((SECONDS - began)) s"
}
for part in install upgrade removal; do boot "$part"; done
echo '3 passed, 0 failed'
