#!/usr/bin/env bash
# Boots Linux 6.1 of Debian 12 with systemd in a virtual machine, twice with one data disk. Shows that
# nothing is forwarded before the first policy is in force. The virtual machine reads the files of this
# machine, and keeps its writes in memory. QEMU emulates the CPU, so a boot takes about a minute.
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/old-kernel-image.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
truncate -s 256M "$work/disk"
mkfs.ext4 -q "$work/disk"

# Usage: boot NAME: boots the virtual machine, which runs the part NAME of scripts/boot-test-check.sh.
boot() {
  local output=$work/$1
  echo "boot-test: boot '$1'"
  timeout --foreground -k 10 900 qemu-system-x86_64 -accel tcg -cpu max,la57=off -machine q35 -m 4G -smp 2 -no-reboot \
    -nodefaults -display none -serial stdio -monitor none -device virtio-rng-pci \
    -drive "file=$work/disk,format=raw,if=virtio" \
    -virtfs local,path=/,security_model=none,readonly=on,mount_tag=host,multidevs=remap \
    -kernel "$kernel/root/boot/vmlinuz-"* -initrd "$kernel/initrd" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0 weir_modules=$kernel/root/lib/modules weir_folder=$PWD weir_init=$PWD/scripts/boot-test-init.sh weir_boot=$1" \
    </dev/null >"$output" 2>&1 || true
  # The console begins a line with terminal sequences.
  sed -n 's/\r$//; s/^.*boot-test: /  /p' "$output"
  if ! grep -q 'boot-test: passed' "$output"; then
    tail -40 "$output"
    echo "boot-test: boot '$1' failed" >&2
    exit 1
  fi
}

boots=("$@")
[ "${#boots[@]}" -gt 0 ] || boots=(unguarded guarded)
for name in "${boots[@]}"; do boot "$name"; done
