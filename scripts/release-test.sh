#!/usr/bin/env bash
# Makes the artefacts of a release twice, in two folders, and compares their bytes. Installs the packages, and
# enforces a policy with the Debian package and the image on real packets. Prints `N passed, N failed` as its
# last line. Needs root, and the packages of Debian 13. Leaves nothing behind: its mounts, network namespaces
# and processes are in namespaces of its own.
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" != inside ]; then
  bash scripts/setup.sh --release
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) unshare --mount --pid --fork --kill-child --mount-proc bash "$0" inside "$work"
  exit
fi
work=$2
source scripts/release/test-network.sh
source scripts/release/test-maintainer-scripts.sh
passed=0 failed=0

# Usage: check TEXT COMMAND…: counts whether the command succeeds.
check() {
  local text=$1
  shift
  if "$@" >"$work/output" 2>&1; then
    passed=$((passed + 1))
    echo "release-test: $text"
  else
    failed=$((failed + 1))
    echo "failed: release-test: $text"
    tail -20 "$work/output"
  fi
}
is() { [ "$1" = "$2" ] || { echo "$1, not $2" && false; }; }
contains() { [[ "$1" == *"$2"* ]] || { echo "$1" && false; }; }
fits() { [ "$(stat -c %s "$1")" -le "$2" ] || { ls -l "$1" && false; }; }

# Makes the artefacts in two folders without Git. One has an older build, the other has another time zone and
# another umask.
export WEIR_IMAGE_BASE=$work/debian WEIR_SIGNING_KEY=$work/key
first=$work/first second=$work/second
minisign -G -W -p "$work/key.pub" -s "$WEIR_SIGNING_KEY" >/dev/null
# Usage: finished FUNCTION: ends the test with the output of the function if it fails.
finished() {
  "$1" >"$work/$1.log" 2>&1 || { cat "$work/$1.log" && exit 1; }
}
base() { bash scripts/release/debian-rootfs.sh trixie "$WEIR_IMAGE_BASE"; }
release_one() { bash "$work/one/scripts/release.sh" "$first"; }
release_other() { (umask 077 && TZ=Pacific/Auckland bash "$work/other/scripts/release.sh" "$second"); }
for copy in one other; do bash scripts/release/copy-sources.sh "$work/$copy"; done
mkdir -p "$work/one/dist/node"
touch "$work/one/dist/node/removed.worker.cjs" "$work/one/dist/.built"
finished base
finished release_other &
finished release_one
wait "$!"
rm -rf "$work/one" "$work/other"
git init --quiet "$work/changed"
cp -r scripts package.json "$work/changed"
check 'a release of files that are not committed is refused' contains "$(SOURCE_DATE_EPOCH=0 bash "$work/changed/scripts/release.sh" "$work/none" 2>&1)" \
  'the files differ from the last commit'
check 'the checksums are right' bash -c "cd '$first' && sha256sum --check --strict SHA256SUMS"
for file in "$first"/*; do check "the same bytes in another folder: ${file##*/}" cmp "$file" "$second/${file##*/}"; done
rm -rf "$second"

version=$(node -p 'require("./package.json").version')
deb=$(ls "$first"/weir_*.deb) image=$first/weir-$version-oci.tar npm=$first/weir-$version.tgz
check "the Debian package has at most 12 MB: $(stat -c %s "$deb") bytes" fits "$deb" 12000000
check "the image has at most 70 MB: $(stat -c %s "$image") bytes" fits "$image" 70000000
check 'lintian finds no error and no warning' lintian --allow-root --fail-on error,warning "$deb"
check 'minisign verifies the signature' minisign -V -p "$work/key.pub" -m "$first/SHA256SUMS"

check 'npm installs the tarball' npm install --global --prefix "$work/npm" --no-audit --no-fund --loglevel=error "$npm"
check 'the installed command runs' is "$("$work/npm/bin/weir" --version)" "$version"
check 'the installed command checks a configuration' "$work/npm/bin/weir" config check examples/weir.yaml

# The source map of this package names files that it does not have.
check 'the licences name a bundled package' grep -q '^fast-copy ' "$work/npm/lib/node_modules/weir/THIRD-PARTY-LICENSES"
check 'the bill of materials names a bundled package' grep -q '"pkg:npm/fast-copy@' "$first/weir-$version.cdx.json"

debian=$work/chroot
cp -a "$WEIR_IMAGE_BASE" "$debian"
cp -a "$deb" "$work/npm/lib/node_modules/weir" "$debian/opt"
network
mount_system "$debian"
apt() { DEBIAN_FRONTEND=noninteractive chroot "$debian" apt-get -y -qq -o APT::Sandbox::User=root --no-install-recommends "$@"; }
check 'Debian 13 installs the Debian package' apt install "/opt/${deb##*/}"
in_debian() { chroot "$debian" "$@"; }
check 'the installed command runs in Debian 13' is "$(in_debian weir --version)" "$version"
check 'the installed command checks a configuration in Debian 13' in_debian weir config check /usr/share/doc/weir/examples/weir.yaml
check 'Node.js takes each code cache' in_debian node -e 'const { compile } = require("/usr/lib/weir/bin/bundle.cjs");
  for (const file of require("node:fs").readdirSync("/usr/lib/weir/dist/node").filter((name) => name.endsWith(".bundle.js")))
    if (compile(`/usr/lib/weir/dist/node/${file}`).cachedDataRejected !== false) throw new Error(file);'
configure "$debian"
install -d -o "$(in_debian id -u weir)" -m 700 "$debian/var/lib/weir"
# The node must start with the modes that systemd and the unit leave.
prepare_pins
CAPS=-all,+net_admin,+bpf,+perfmon,+net_raw,+net_bind_service
start_package=(chroot "$debian" setpriv --reuid weir --regid weir --clear-groups --no-new-privs
  --bounding-set "$CAPS" --inh-caps "$CAPS" --ambient-caps "$CAPS" /usr/bin/weir run --config /etc/weir/weir.yaml)
enforces 'the Debian package' "${start_package[@]}"
stop_node
pins_of_root
removal
installation
autoremoval
rm "$debian"/usr/lib/*-linux-gnu/librocksdb.so.*
says=$(chroot "$debian" node /opt/weir/bin/weir.js run --config /opt/weir/examples/weir.yaml 2>&1 || true)
check 'the npm package names a missing Debian package' contains "$says" 'Debian 13: librocksdb9.10'
umount -R "$debian"

root=$work/image
mkdir -p "$work/oci" "$root"
tar --extract --file="$image" --directory="$work/oci"
blob() { echo "$work/oci/blobs/sha256/${1#sha256:}"; }
manifest=$(blob "$(node -p 'JSON.parse(fs.readFileSync(process.argv[1])).manifests[0].digest' "$work/oci/index.json")")
for layer in $(node -p 'JSON.parse(fs.readFileSync(process.argv[1])).layers.map((each) => each.digest).join(" ")' "$manifest"); do
  tar --extract --file="$(blob "$layer")" --directory="$root"
done
check 'the image has no shell' is "$(find "$root" ! -type d -regex '.*/\(sh\|bash\|dash\|busybox\|perl\|apt\|dpkg\)')" ''
configure "$root"
mount_system "$root"
for number in '3 null' '9 urandom'; do mknod -m 666 "$root/dev/${number#* }" c 1 "${number% *}"; done
mount -t tmpfs -o mode=700 tmpfs "$root/var/lib/weir"
mount -o remount,bind,ro "$root"
enforces 'the image' python3 scripts/release/run-confined.py "$root" /usr/bin/weir run --config /etc/weir/weir.yaml
stop_node

printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
