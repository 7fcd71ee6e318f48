#!/usr/bin/env bash
# Sets `base` to a folder with a root file system of Debian 13 (root.tar), its kernel and its initrd, which
# package-test.sh boots. Makes the folder if it is missing, from the mirror of this machine: this downloads
# about 200 MB. apt and dpkg of this machine stay unchanged. package-test.sh and package-container.sh source
# this file.
cache=/var/cache/weir-package-test
# Increase the last number after a change of this file.
base=$cache/trixie-1

image_failed() {
  echo "package-test: $*" >&2
  exit 1
}
make_base() {
  local key mirror
  key=/usr/share/keyrings/debian-archive-keyring.gpg
  [ -e "$key" ] || image_failed "there is no $key, with which apt checks the packages of Debian."
  mirror=$(apt-get indextargets --format '$(SITE)' 'Label: Debian' | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }') || mirror=
  [ -n "$mirror" ] || image_failed 'the sources of apt name no mirror of Debian, or apt-get update has not run.'
  echo 'package-test: making the root file system of Debian 13, which takes some minutes'
  rm -rf "$base" "$base.new"
  mkdir -p "$base.new"
  # The initrd has only the modules that find the disk, so that it is small: QEMU emulates the CPU.
  mmdebstrap --quiet --mode=root --variant=apt --format=tar \
    --include=systemd-sysv,udev,kmod,iproute2,iputils-ping,initramfs-tools,zstd,linux-image-amd64 \
    --essential-hook='mkdir -p "$1/etc/initramfs-tools"; printf "MODULES=list\nCOMPRESS=lz4\nCOMPRESSLEVEL=1\n" >"$1/etc/initramfs-tools/conf"
      mkdir -p "$1/etc/initramfs-tools/conf.d"; echo "MODULES=list" >"$1/etc/initramfs-tools/conf.d/weir"
      printf "virtio_pci\nvirtio_blk\nvirtio_rng\next4\n" >"$1/etc/initramfs-tools/modules"' \
    --customize-hook='cp "$1"/boot/vmlinuz-* '"$base.new"'/vmlinuz; cp "$1"/boot/initrd.img-* '"$base.new"'/initrd; rm "$1"/boot/initrd.img-*' \
    trixie "$base.new/root.tar" "deb [signed-by=$key] $mirror trixie main" >"$cache/image.log" 2>&1 9>&- ||
    image_failed "mmdebstrap failed, see $cache/image.log: $(tail -1 "$cache/image.log")"
  mv "$base.new" "$base"
}
if [ ! -e "$base/root.tar" ]; then
  mkdir -p "$cache"
  # A second call waits for the first one.
  exec 9>"$cache/lock"
  flock -w 1200 9 || image_failed 'another run has not made the root file system for 20 minutes.'
  [ -e "$base/root.tar" ] || make_base
  exec 9>&-
fi

# Usage: make_root FOLDER PACKAGE…: makes FOLDER/root, a root file system with the packages and what they
# depend on in /srv/packages, which is a source of apt.
make_root() {
  local folder=$1 root=$1/root depends archives package part
  shift
  mkdir "$root"
  tar -C "$root" -xf "$base/root.tar" --exclude='./dev/*'
  # The key is the list of dependencies: another one needs other packages.
  depends=$(dpkg-deb -f "$1" Depends)
  archives=$base/depends-$(echo "$depends" | sha256sum | cut -c1-12)
  if [ ! -e "$archives" ]; then
    echo 'package-test: downloading what the package depends on'
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    cp "$1" "$root/tmp/weir.deb"
    {
      chroot "$root" apt-get update -q
      chroot "$root" apt-get install -q -y --no-install-recommends --download-only /tmp/weir.deb
    } >"$cache/depends.log" 2>&1 || image_failed "apt-get failed, see $cache/depends.log: $(tail -1 "$cache/depends.log")"
    mkdir "$archives.new"
    mv "$root"/var/cache/apt/archives/*.deb "$archives.new"
    mv "$archives.new" "$archives"
    rm -r "$root/tmp/weir.deb" "$root/etc/resolv.conf" "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin
  fi
  mkdir "$root/srv/packages"
  cp "$archives"/*.deb "$@" "$root/srv/packages"
  for package in "$archives"/*.deb; do
    dpkg-deb -f "$package"
    echo "Filename: ./${package##*/}"
    echo "Size: $(stat -c %s "$package")"
    echo "SHA256: $(sha256sum "$package" | cut -d' ' -f1)"
    echo
  done >"$root/srv/packages/Packages"
  echo 'deb [trusted=yes] file:/srv/packages ./' >"$root/etc/apt/sources.list"
  rm -f "$root"/etc/apt/sources.list.d/*
  # An interrupted test is not continued, so nothing is lost without a sync of each file.
  echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/package-test"
  # The commands of docs/install.md have neither -y nor --no-install-recommends.
  printf 'APT::Get::Assume-Yes "true";\nAPT::Install-Recommends "false";\n' >"$root/etc/apt/apt.conf.d/package-test"
  install -m 644 -D docs/install.md "$root/srv/docs/install.md"
  install -m 755 scripts/package-test-guest.sh scripts/packet-counters.sh scripts/package-test-traffic.mjs "$root/srv"
  mkdir -p "$root/etc/sysctl.d"
  printf 'net.ipv4.ip_forward=1\nnet.core.rmem_max=16777216\n' >"$root/etc/sysctl.d/package-test.conf"
  echo gateway >"$root/etc/hostname"
  : >"$root/etc/fstab"
  ln -sf /dev/null "$root/etc/systemd/system/serial-getty@.service"
  unit "$root" network $'Wants=network-pre.target\nAfter=network-pre.target systemd-sysctl.service\nBefore=network.target' \
    $'Type=oneshot\nRemainAfterExit=yes\nExecStart=/srv/package-test-guest.sh network'
  for part in install upgrade removal; do
    unit "$root" "$part" "ConditionKernelCommandLine=package_test=$part
After=multi-user.target
SuccessAction=poweroff-force
FailureAction=poweroff-force" "Type=oneshot
ExecStart=/srv/package-test-guest.sh $part
ExecStopPost=/bin/sync"
  done
}

# Usage: make_disk FOLDER PACKAGE…: makes FOLDER/disk, the disk of a virtual machine, from the same files.
make_disk() {
  make_root "$@"
  truncate -s 3G "$1/disk"
  PATH="$PATH:/usr/sbin:/sbin" mke2fs -q -t ext4 -d "$1/root" "$1/disk"
  rm -rf "$1/root"
}

# Usage: build_packages FOLDER: builds two packages of this tree, the second with a later version, and sets
# `packages`.
build_packages() {
  local version build
  version=$(node -p 'require("./package.json").version')
  for build in 1 2; do
    WEIR_VERSION=$version+test$build bash scripts/release.sh "$1/release$build" deb >"$1/log" 2>&1 || {
      tail -20 "$1/log"
      image_failed 'the package was not built'
    }
  done
  packages=("$1"/release[12]/weir_*.deb)
}

# Usage: unit ROOT NAME UNIT-LINES SERVICE-LINES: adds an enabled unit of systemd.
unit() {
  local units=$1/etc/systemd/system
  mkdir -p "$units/multi-user.target.wants"
  printf '[Unit]\n%s\n[Service]\n%s\nStandardOutput=tty\nStandardError=tty\nTTYPath=/dev/console\n' "$3" "$4" >"$units/package-test-$2.service"
  ln -s "../package-test-$2.service" "$units/multi-user.target.wants/"
}
