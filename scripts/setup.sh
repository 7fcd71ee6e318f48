#!/usr/bin/env bash
# Installs what is missing and builds. Says each thing that it does; says nothing where nothing is to do.
#   --test   also what only the tests need
#   --trials  also what only the tests and the trials need
#   --bench  also what only the benchmarks need
#   --old-kernel  also what runs tests on another kernel
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }

node -e '
  const [major, minor] = process.versions.node.split(".").map(Number);
  process.exit({ 20: minor >= 19, 22: minor >= 13, 24: true }[major] ? 0 : 1);
' || {
  say "Node 20.19 or later of 20, 22.13 or later of 22, or 24 is needed; this is $(node --version)."
  exit 1
}

# command or file → Debian package
needs=(clang:clang llvm-strip:llvm nft:nftables ip:iproute2 nsenter:util-linux
  /usr/include/bpf/bpf_helpers.h:libbpf-dev /usr/include/linux/bpf.h:linux-libc-dev)
[[ "${1:-}" = --test || "${1:-}" = --trials ]] && needs+=(bpftool:bpftool ping:iputils-ping hping3:hping3 curl:curl strace:strace iptables-legacy:iptables dnsmasq:dnsmasq-base dig:bind9-dnsutils
  openssl:openssl python3:python3 nginx:nginx-light h2load:nghttp2-client)
# tstclnt and selfserv of NSS, gnutls-cli and gnutls-serv; tools that make packets
[ "${1:-}" = --trials ] && needs+=(selfserv:libnss3-tools gnutls-serv:gnutls-bin
  /usr/lib/python3/dist-packages/scapy:python3-scapy nmap:nmap arping:arping iptables-nft:iptables)
[ "${1:-}" = --bench ] && needs+=(ethtool:ethtool iptables-legacy:iptables iptables-nft:iptables
  dnsperf:dnsperf dnsdist:dnsdist unbound:unbound dnsmasq:dnsmasq-base dig:bind9-dnsutils taskset:util-linux
  squid:squid-openssl mitmdump:mitmproxy haproxy:haproxy nginx:nginx-light h2load:nghttp2-client wrk:wrk)
[ "${1:-}" = --old-kernel ] && needs+=(qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio depmod:kmod dpkg:dpkg)

missing=()
for need in "${needs[@]}"; do
  case "$need" in
    /*) [ -e "${need%%:*}" ] || missing+=("${need##*:}") ;;
    *) PATH="$PATH:/usr/sbin:/sbin" command -v "${need%%:*}" >/dev/null || missing+=("${need##*:}") ;;
  esac
done
# Its name has the version of RocksDB in it.
rocksdb=
for library in /usr/local/lib/librocksdb.so.* /usr/lib/*-linux-gnu/librocksdb.so.* /usr/lib64/librocksdb.so.* /usr/lib/librocksdb.so.*; do
  if [[ -e "$library" && "$library" =~ [.]so[.]([0-9]+)[.]([0-9]+)$ ]] && ((BASH_REMATCH[1] > 7 || (BASH_REMATCH[1] == 7 && BASH_REMATCH[2] >= 8))); then rocksdb=$library; fi
done
if [ -z "$rocksdb" ]; then
  if ! command -v apt-get >/dev/null; then
    say "RocksDB 7.8 or later is missing (a file librocksdb.so.N.M), and there is no apt-get: install it by hand. A node does not start without it."
    exit 1
  fi
  name=$(apt-cache depends librocksdb-dev 2>/dev/null | sed -n 's/^ *Depends: \(librocksdb[0-9.]*\)$/\1/p' | head -1)
  if [ "$(id -u)" != 0 ]; then
    say "RocksDB 7.8 or later is missing. Without root it cannot be installed: apt-get install ${name:-librocksdb7.8 (Debian 12) or librocksdb9.10 (Debian 13)}. A node does not start without it."
    exit 1
  fi
  if [ -z "$name" ]; then
    apt-get update -qq >/dev/null 2>&1 || true
    name=$(apt-cache depends librocksdb-dev 2>/dev/null | sed -n 's/^ *Depends: \(librocksdb[0-9.]*\)$/\1/p' | head -1)
  fi
  if [ -z "$name" ]; then
    say "RocksDB 7.8 or later is missing, and apt-cache knows no package librocksdb-dev to tell its name: install it by hand. A node does not start without it."
    exit 1
  fi
  missing+=("$name")
fi
if [ "${#missing[@]}" -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    say "without root these Debian packages cannot be installed: ${missing[*]}. The API runs without them, the dataplane does not."
  elif ! command -v apt-get >/dev/null; then
    say "no apt-get here: install ${missing[*]} (Debian's names) by hand. The API runs without them, the dataplane does not."
  else
    say "installing Debian packages: ${missing[*]}"
    log=$(mktemp)
    if [ -n "${1:-}" ] && [ ! -e /usr/sbin/policy-rc.d ]; then
      # Servers that are installed to be tried or measured are not to run by themselves.
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
  npm ci --no-audit --no-fund --loglevel=error
  cp package-lock.json node_modules/.weir-lock
fi

[ "${1:-}" != --test ] || bash scripts/node-versions.sh --install

bash scripts/build.sh
