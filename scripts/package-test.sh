#!/usr/bin/env bash
# Installs, upgrades, removes and purges the Debian package in a virtual machine with Debian 13, its kernel
# and its systemd, as an operator does. The virtual machine has no network: it installs what the package
# depends on from a folder. QEMU emulates the CPU, so each boot takes some minutes.
#   scripts/package-test.sh [A.deb B.deb]  tests these packages; else builds both from this tree
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh --package-test
source scripts/package-test-root.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ $# = 2 ]; then packages=("$1" "$2"); else build_packages "$work"; fi
make_disk "$work" "${packages[@]}"

# Usage: emulate PART OUTPUT: boots the virtual machine once, and writes its console to OUTPUT.
emulate() {
  timeout --foreground -k 10 "${WEIR_PACKAGE_TEST_SECONDS:-1800}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max,la57=off -machine q35 \
    -m 2G -smp 2 -no-reboot -nodefaults -display none -serial stdio -monitor none -device virtio-rng-pci \
    -drive "file=$work/disk,format=raw,if=virtio,cache=unsafe" -kernel "$base/vmlinuz" -initrd "$base/initrd" \
    -append "root=/dev/vda rw console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0 systemd.show_status=0 package_test=$1" \
    </dev/null >"$2" 2>&1 || true
}
# Usage: boot PART: boots the virtual machine, which runs this part of scripts/package-test-guest.sh.
boot() {
  local output=$work/$1 began=$SECONDS attempt
  for attempt in 1 2 3; do
    emulate "$1" "$output"
    # QEMU emulates two CPUs in two threads, and the guest changes its own code while it starts
    # (int3 in sched_clock_cpu). Rarely, it panics then: within 5 s, before systemd runs.
    grep -qE '^\[ +[0-4]\.[0-9]+\] Kernel panic' "$output" || break
    echo "package-test: boot '$1' ended by a panic of the emulated kernel (attempt $attempt of 3)"
  done
  # The console begins a line with terminal sequences.
  sed -n 's/\r$//; s/^.*package-test: //p; /^  /p' "$output"
  echo "package-test: boot '$1' took $((SECONDS - began)) s"
  if ! grep -q 'package-test: .*s: passed' "$output"; then
    tail -60 "$output"
    image_failed "boot '$1' failed"
  fi
}
for part in install upgrade removal; do boot "$part"; done
echo 'package-test: passed'
