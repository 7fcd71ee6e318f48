#!/usr/bin/env bash
# Installs missing packages and builds Weir. Prints each action; prints nothing if there is nothing to do.
#   --test        also installs packages that only the tests and `npm run check` need
#   --trials      also installs packages that only the tests and the trials need
#   --cluster     also installs etcd, which only the tour of a cluster needs
#   --bench       also installs packages that only the benchmarks need
#   --release     also installs packages that only scripts/release.sh and scripts/release-test.sh need
#   --old-kernel  also installs packages that only scripts/old-kernel.sh needs
#   --package-test  also installs packages that only scripts/package-test.sh and package-container.sh need
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
trap '[ -w . ] || say "the user $(id -un) may not write to $PWD: clone it as this user, or run setup as the owner of the folder."' ERR

node -e '
  const [major, minor, patch] = process.versions.node.split(".").map(Number);
  process.exit({ 20: minor > 19 || (minor === 19 && patch >= 2), 22: minor >= 16, 24: true }[major] ? 0 : 1);
' || {
  say "Node 20 (20.19.2 or later), 22 (22.16 or later) or 24 is needed; this is $(node --version)."
  exit 1
}

# Each element is a command or file, a colon, and the Debian package that contains it.
needs=(clang:clang llvm-strip:llvm nft:nftables ip:iproute2 nsenter:util-linux
  /usr/include/bpf/bpf_helpers.h:libbpf-dev /usr/include/linux/bpf.h:linux-libc-dev)
[[ "${1:-}" = --test || "${1:-}" = --trials ]] && needs+=(bpftool:bpftool ping:iputils-ping hping3:hping3 curl:curl strace:strace ethtool:ethtool iptables-legacy:iptables dnsmasq:dnsmasq-base dig:bind9-dnsutils
  openssl:openssl fish:fish /usr/bin/python3:python3 nginx:nginx-light h2load:nghttp2-client etcd:etcd-server etcdctl:etcd-client clang-format-19:clang-format-19 chromium:chromium
  /usr/share/fonts/truetype/dejavu:fonts-dejavu-core /usr/share/fonts/truetype/open-sans:fonts-open-sans)
# The trials use the TLS tools of NSS (tstclnt, selfserv, certutil) and GnuTLS, packet generators, the clients
# of users, and a server that answers over HTTP/3 (caddy).
[ "${1:-}" = --trials ] && needs+=(selfserv:libnss3-tools gnutls-serv:gnutls-bin
  /usr/lib/python3/dist-packages/scapy:python3-scapy nmap:nmap arping:arping iptables-nft:iptables
  firefox-esr:firefox-esr git:git wget:wget ssh:openssh-client sshd:openssh-server caddy:caddy)
[ "${1:-}" = --cluster ] && needs+=(etcd:etcd-server etcdctl:etcd-client)
[ "${1:-}" = --bench ] && needs+=(ethtool:ethtool iptables-legacy:iptables iptables-nft:iptables
  dnsperf:dnsperf dnsdist:dnsdist unbound:unbound dnsmasq:dnsmasq-base dig:bind9-dnsutils taskset:util-linux
  squid:squid-openssl mitmdump:mitmproxy haproxy:haproxy nginx:nginx-light h2load:nghttp2-client wrk:wrk)
[ "${1:-}" = --release ] && needs+=(mmdebstrap:mmdebstrap minisign:minisign lintian:lintian setpriv:util-linux ping:iputils-ping curl:curl)
[ "${1:-}" = --old-kernel ] && needs+=(qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio depmod:kmod dpkg:dpkg)
[ "${1:-}" = --package-test ] && needs+=(qemu-system-x86_64:qemu-system-x86 mmdebstrap:mmdebstrap mke2fs:e2fsprogs)

missing=()
for need in "${needs[@]}"; do
  case "$need" in
    /*) [ -e "${need%%:*}" ] || missing+=("${need##*:}") ;;
    *) PATH="$PATH:/usr/sbin:/sbin" command -v "${need%%:*}" >/dev/null || missing+=("${need##*:}") ;;
  esac
done
# The name of the Debian package of RocksDB contains a version, so search for the library file, and ask apt
# for the name.
rocksdb=
for library in /usr/local/lib/librocksdb.so.* /usr/lib/*-linux-gnu/librocksdb.so.* /usr/lib64/librocksdb.so.* /usr/lib/librocksdb.so.*; do
  if [[ -e "$library" && "$library" =~ [.]so[.]([0-9]+)[.]([0-9]+)$ ]] && ((BASH_REMATCH[1] > 7 || (BASH_REMATCH[1] == 7 && BASH_REMATCH[2] >= 8))); then rocksdb=$library; fi
done
if [ -z "$rocksdb" ]; then
  package_of_rocksdb() { apt-cache depends librocksdb-dev 2>/dev/null | sed -n 's/^ *Depends: \(librocksdb[0-9.]*\)$/\1/p' | head -1; }
  name=$(package_of_rocksdb) || true
  if [ -z "$name" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq >/dev/null 2>&1 || true
    name=$(package_of_rocksdb) || true
  fi
  missing+=("${name:-librocksdb}")
fi
hindrance=
if ! command -v apt-get >/dev/null; then
  hindrance="there is no apt-get; install by hand (Debian's names):"
elif [ "$(id -u)" != 0 ]; then
  hindrance='only root can install it: apt-get install'
elif [[ "${missing[*]}" =~ librocksdb$ ]]; then
  hindrance='apt-cache has no package librocksdb-dev, whose dependency is the package of RocksDB; install by hand:'
fi
if [ "${#missing[@]}" -gt 0 ]; then
  if [ -n "$hindrance" ]; then
    say "missing here, and $hindrance ${missing[*]}"
    if [ -z "$rocksdb" ]; then
      say "A node does not start without RocksDB 7.8 or later, a file librocksdb.so.N.M (librocksdb7.8 in Debian 12, librocksdb9.10 in Debian 13)."
      exit 1
    fi
    case "${1:-}" in
      '') say 'Until then the API runs, and the dataplane does not.' ;;
      *) say 'Until then the tests or benchmarks that use it fail.' ;;
    esac
  else
    say "installing Debian packages: ${missing[*]}"
    log=$(mktemp)
    if [ -n "${1:-}" ] && [ ! -e /usr/sbin/policy-rc.d ]; then
      # Debian starts an installed server. Prevent this for the servers that tests, trials and benchmarks
      # need.
      trap 'rm -f /usr/sbin/policy-rc.d' EXIT
      printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
      chmod +x /usr/sbin/policy-rc.d
    fi
    if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
      tail -20 "$log"
      rm -f "$log"
      say "installing ${missing[*]} failed."
      exit 1
    fi
    rm -f "$log"
  fi
fi

if ! cmp -s package-lock.json node_modules/.weir-lock 2>/dev/null; then
  say "installing npm packages (npm ci)"
  # No npm package needs its install script. On Node 22 and 24, the install script of `rocksdb` (for one test)
  # would compile RocksDB, which takes more than ten minutes.
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
  cp package-lock.json node_modules/.weir-lock
fi

[ "${1:-}" != --test ] || bash scripts/node-versions.sh --install
# Without the API servers, the suite leaves out the tests that need them.
[[ "${1:-}" != --test && "${1:-}" != --trials ]] || bash scripts/kube-apiserver.sh --unless-failed || true
[ "${1:-}" != --test ] || bash scripts/api-machinery.sh --unless-failed || true

bash scripts/build.sh
