#!/usr/bin/env bash
# Runs tests on the oldest supported kernel, Linux 6.1 of Debian 12, in a virtual machine. The virtual machine
# reads the files of this machine, and keeps its writes in memory. Arguments are test files. QEMU emulates the
# CPU, so a test file takes minutes. WEIR_KERNEL=6.12 selects that kernel of Debian in place of 6.1.
set -euo pipefail
cd "$(dirname "$0")/.."

case "$PWD" in
  /tmp/* | /run/*)
    echo "old-kernel: move the repository out of $PWD: the virtual machine has its own /tmp and /run." >&2
    exit 1
    ;;
esac
bash scripts/setup.sh --old-kernel
files=("$@")
[ "${#files[@]}" -gt 0 ] || files=(test/dataplane/variants.test.ts test/dataplane/flows.test.ts)
cache=/var/cache/weir-old-kernel
modules=(virtio_pci virtio_rng 9pnet_virtio 9p overlay)

case "${WEIR_KERNEL:-6.1}" in
  6.1) pattern='^linux-image-6\.1\.0-[0-9]+-amd64$' ;;
  6.12) pattern='^linux-image-6\.12\.[0-9]+\+deb1[23]-amd64$' ;;
  *)
    echo "old-kernel: WEIR_KERNEL is 6.1 or 6.12." >&2
    exit 1
    ;;
esac
package=$(apt-cache search --names-only "$pattern" | cut -d' ' -f1 | sort -V | tail -1)
if [ -z "$package" ]; then
  echo "old-kernel: apt knows no package $pattern: the kernels are those of Debian 12 and its backports." >&2
  exit 1
fi
kernel=$cache/$package
if [ ! -e "$kernel/initrd" ] || [ scripts/old-kernel-init.sh -nt "$kernel/initrd" ]; then
  echo "old-kernel: $package"
  rm -rf "$kernel"
  mkdir -p "$kernel/root"
  (cd "$kernel" && apt-get download -qq "$package" && dpkg -x "$package"_*.deb root)
  version=$(ls "$kernel/root/lib/modules")
  depmod -b "$kernel/root" "$version"
  mkdir -p "$kernel/first"/{bin,modules,dev}
  mknod "$kernel/first/dev/console" c 5 1
  cp "$(command -v busybox)" "$kernel/first/bin/busybox"
  install -m 755 scripts/old-kernel-init.sh "$kernel/first/init"
  number=10
  for module in "${modules[@]}"; do
    while read -r _ file; do
      ls "$kernel/first/modules" | grep -qF "$(basename "$file")" || cp "$file" "$kernel/first/modules/$((number++))-$(basename "$file")"
    done < <(modprobe -d "$kernel/root" -S "$version" --show-depends "$module" | grep '^insmod')
  done
  (cd "$kernel/first" && find . | cpio -o -H newc --quiet | gzip -1) >"$kernel/initrd.new"
  mv "$kernel/initrd.new" "$kernel/initrd"
fi

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
