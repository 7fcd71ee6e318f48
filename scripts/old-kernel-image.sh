#!/usr/bin/env bash
# Sets `kernel` to a folder with Linux 6.1 of Debian 12, or 6.12 with WEIR_KERNEL=6.12, and the first file
# system (initrd) of a virtual machine. Installs and makes what is missing. The scripts that start virtual
# machines source this file.
case "$PWD" in
  /tmp/* | /run/*)
    echo "old-kernel: move the repository out of $PWD: the virtual machine has its own /tmp and /run." >&2
    exit 1
    ;;
esac
bash scripts/setup.sh --old-kernel
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
