#!/usr/bin/env bash
# Runs tests on the oldest supported kernel, Linux 6.1 of Debian 12, in a virtual machine. The virtual machine
# reads the files of this machine, and keeps its writes in memory. Arguments are test files. QEMU emulates the
# CPU, so a test file takes minutes. WEIR_KERNEL=6.12 selects that kernel of Debian in place of 6.1.
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."

files=("$@")
[ "${#files[@]}" -gt 0 ] || files=(test/dataplane/variants.test.ts test/dataplane/flows.test.ts test/kernel/another-user.test.ts test/kernel/inspected-nat.test.ts)
source scripts/old-kernel-image.sh

output=$(mktemp)
trap 'rm -f "$output"' EXIT
timeout --foreground -k 10 3000 qemu-system-x86_64 -accel tcg -cpu max,la57=off -machine q35 -m 4G -no-reboot -nodefaults -display none \
  -serial stdio -monitor none -device virtio-rng-pci \
  -virtfs local,path=/,security_model=none,readonly=on,mount_tag=host,multidevs=remap \
  -kernel "$kernel/root/boot/vmlinuz-"* -initrd "$kernel/initrd" \
  -append "console=ttyS0 quiet panic=-1 mitigations=off net.ifnames=0 weir_modules=$kernel/root/lib/modules weir_folder=$PWD weir_files=$(IFS=,; echo "${files[*]}")" \
  </dev/null | tee "$output"
# Search for the text anywhere in a line, because Vitest may print a terminal sequence before it.
grep -q 'old-kernel: passed' "$output"
