#!/usr/bin/env bash
# Makes the Debian package from the tree. Usage: deb.sh STAGE VERSION FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."
stage=$1 version=$2 out=$3

# Debian sorts 1.0.0~rc.1 before 1.0.0.
debian_version=${version//-/\~}
architecture=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
lib=$root/usr/lib/weir doc=$root/usr/share/doc/weir units=$root/usr/lib/systemd/system
mkdir -p "$root/DEBIAN" "$root/etc/weir" "$root/usr/bin" "$lib" "$doc" "$units" "$root"/usr/lib/sysusers.d \
  "$root"/usr/share/man/man1 "$root"/usr/share/lintian/overrides

cp -a "$stage"/{bin,dist,node_modules,schemas,package.json,THIRD-PARTY-LICENSES} "$lib"
# The Node.js that the package depends on, and no other in PATH.
sed -i '1s,.*,#!/usr/bin/node,' "$lib/bin/weir.js"
ln -s ../lib/weir/bin/weir.js "$root/usr/bin/weir"
cp -a "$stage"/deploy/systemd/*.service "$units"
# `weir init` installs it if it replaces no command of the operator.
mkdir -p "$lib/deploy/systemd"
cp -a "$stage/deploy/systemd/nftables.service.d" "$lib/deploy/systemd"
cp deploy/debian/weir.sysusers "$root/usr/lib/sysusers.d/weir.conf"
cp -a "$stage"/{docs,SECURITY.md,CHANGELOG.md,examples} "$doc"
cp -a "$stage"/deploy/{grafana,prometheus,kubernetes} "$doc/examples"
cp deploy/debian/copyright "$doc"
gzip -n9 >"$doc/changelog.gz" <<END
weir ($debian_version) unstable; urgency=medium

  * See CHANGELOG.md.

 -- $(sed -n 's/^Maintainer: //p' deploy/debian/control)  $(date -R -d "@$SOURCE_DATE_EPOCH")
END
gzip -n9 <deploy/debian/weir.1 >"$root/usr/share/man/man1/weir.1.gz"
cp deploy/debian/lintian-overrides "$root/usr/share/lintian/overrides/weir"

node=$(command -v node)
completions() {
  mkdir -p "$root/usr/share/$2"
  "$node" "$stage/bin/weir.js" completion "$1" >"$root/usr/share/$2/$3"
}
completions bash bash-completion/completions weir
completions zsh zsh/vendor-completions _weir
completions fish fish/vendor_completions.d weir.fish

cp deploy/debian/{control,triggers,postinst,prerm,postrm} "$root/DEBIAN"
# The size in KiB as dpkg-gencontrol counts it: each file in whole KiB, each folder as one.
size=$(find "$root" -path "$root/DEBIAN" -prune -o -type f -printf '%s\n' -o -printf '1\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')
sed -i "s/@VERSION@/$debian_version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/" "$root/DEBIAN/control"
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
bash scripts/release/same-attributes.sh "$root"
chmod 755 "$root"/DEBIAN/{postinst,prerm,postrm}
dpkg-deb --build --root-owner-group -Zxz --threads-max=1 "$root" "$out/weir_${debian_version}_$architecture.deb" >/dev/null
