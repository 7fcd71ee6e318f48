#!/usr/bin/env bash
# The parts of a boot of boot-test.sh; units of systemd run them. `network` makes a client and a server behind
# the node, and two hosts (left, right) at two ports of a bridge. `traffic` sends from client and left without
# a pause, `before` runs directly before Weir starts, and `check` runs after it.
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
source "$(dirname "$0")/packet-counters.sh"
say() { echo "boot-test: $*"; }
fail() {
  say "FAILED: $*"
  tail -20 /run/weir.log || true
  ready
  exit 1
}
weir() { node "$FOLDER/bin/weir.js" "$@" --config /etc/weir/weir.yaml; }
# Prints the packets that were sent and received, by whether the policy allows them: routed, and switched.
counts() {
  local way from to
  for way in 'routed client server' 'switched left right'; do
    read -r way from to <<<"$way"
    echo "$way: sent $(count "$from" allowed)+$(count "$from" denied) received $(count "$to" allowed)+$(count "$to" denied)"
  done
}
# Usage: report TEXT FILE: prints the counts in a file.
report() { while read -r line; do say "$1: $line"; done <"$2"; }
ready() { curl -s --max-time 5 http://127.0.0.1:8080/ready || true; }
# Usage: until_true SECONDS COMMAND…
until_true() {
  local until=$((SECONDS + $1))
  shift
  while ((SECONDS < until)); do
    if "$@"; then return 0; fi
    sleep 0.2
  done
  return 1
}
# Usage: is_sent PACKETS: returns whether the client has sent this number of packets that the policy allows.
is_sent() { [ "$(count client allowed)" -ge "$1" ]; }
responds() { [ -n "$(ready)" ]; }
is_in_force() { [[ $(ready) == *'"in_force_since":"'* ]]; }
grows() {
  local routed switched
  routed=$(count server allowed) switched=$(count right allowed)
  sleep 1
  [ "$(count server allowed)" -gt "$routed" ] && [ "$(count right allowed)" -gt "$switched" ]
}
guard_stands() { nft list chain inet weir guard >/dev/null 2>&1; }

network() {
  local name port net
  ip link add br0 type bridge forward_delay 0
  ip link set br0 up
  for side in 'client lan0 10.77.1' 'server wan0 10.77.2' 'left port0 10.78.0' 'right port1 10.78.0'; do
    read -r name port net <<<"$side"
    ip netns add "$name"
    ip link add "$port" type veth peer name eth0 netns "$name"
    case "$name" in
      left | right)
        # Without ARP, packets of the policy alone decide whether the hosts reach each other.
        local own=1 other=2
        [ "$name" = left ] || own=2 other=1
        ip -n "$name" link set eth0 address "02:00:00:00:00:0$own"
        ip -n "$name" addr add "$net.$own/24" dev eth0
        ip -n "$name" neigh add "$net.$other" lladdr "02:00:00:00:00:0$other" dev eth0
        ip link set "$port" master br0
        ;;
      *)
        ip addr add "$net.1/24" dev "$port"
        ip -n "$name" addr add "$net.2/24" dev eth0
        ;;
    esac
    ip link set "$port" up
    ip -n "$name" link set eth0 up
    [[ $name == @(left|right) ]] || ip -n "$name" route add default via "$net.1"
    count_packets "$name" "$([[ $name == @(client|left) ]] && echo output || echo input)"
  done
  sysctl -q net.ipv4.ip_forward=1
}

# The policy allows the echo requests, and denies UDP. A read from a pipe without a writer waits, and needs no
# process, unlike `sleep`.
traffic() {
  mkfifo /run/pause
  exec 3<>/run/pause
  ip netns exec client ping -q -n -i 0.02 10.77.2.2 >/dev/null &
  ip netns exec left ping -q -n -i 0.05 10.78.0.2 >/dev/null &
  ip netns exec left bash -c 'while :; do echo >/dev/udp/10.78.0.2/9; read -t 0.05 -u 3; done' 2>/dev/null &
  exec ip netns exec client bash -c 'while :; do echo >/dev/udp/10.77.2.2/9; read -t 0.02 -u 3; done' 2>/dev/null
}

# Runs before Weir starts. Each restart and reload of nftables flushes all rules.
before() {
  until_true 60 is_sent 100 || true
  counts >/run/before
  local guard network
  guard=$(systemctl show -P ActiveEnterTimestampMonotonic weir-guard.service)
  network=$(systemctl show -P ActiveEnterTimestampMonotonic boot-test-network.service)
  echo "the guard was loaded $(((network - guard) / 1000)) ms before the interfaces were up" >/run/units
  [ -s /var/lib/weir/guard.nft ] || return 0
  for _ in 1 2 3; do
    systemctl reset-failed # systemd limits how often a unit starts within ten seconds
    systemctl restart nftables.service
    systemctl reload nftables.service
  done
  systemctl stop nftables.service
  sleep 1
  systemctl start nftables.service
  counts >/run/restarted
}

check() {
  "$BOOT"
  say passed
  sync
}

# The first start of Weir, without the unit: the kernel forwards packets before it.
unguarded() {
  until_true 120 responds || fail 'Weir does not start'
  report 'before Weir started, without the units' /run/before
  while read -r _ _ _ _ received; do
    [[ $received != 0+* && $received != *+0 ]] || fail 'nothing was forwarded without the units: this test shows nothing'
  done </run/before
  echo '{"default_policy":"deny","source_groups":[{"id":"lan","sources":{"cidrs":["10.77.1.0/24","10.78.0.0/24"]},"rules":[{"id":"ping","action":"allow","match":{"proto":"icmp"}}]}]}' >/run/policy.json
  until_true 60 weir policy apply --name boot --mode enforce -f /run/policy.json || fail 'the policy is refused'
  until_true 20 grows || fail 'the allowed packets do not pass'
  [ -s /var/lib/weir/guard.nft ] || fail 'Weir has not written the boot file'
  [[ $(ready) == *'weir-guard.service is not enabled'* ]] || fail "readiness does not name the unit: $(ready)"
  say "readiness: $(ready | grep -o 'weir-guard.service is[^"]*')"
}

guarded() {
  say "$(cat /run/units)"
  until_true 120 is_in_force || fail 'Weir does not become ready'
  report 'before Weir started' /run/before
  report 'after nftables restarted and reloaded three times and stopped once, before Weir started' /run/restarted
  while read -r way _ sent _ received; do
    [[ ${sent%+*} -gt 50 && ${sent#*+} -gt 50 ]] || fail "too few packets were sent: $way $sent"
    [ "$received" = 0+0 ] || fail "packets were forwarded before the first policy: $way $received"
  done < <(cat /run/before /run/restarted)
  until_true 20 grows || fail 'the allowed packets do not pass'
  report 'with the policy' <(counts)
  [[ $(ready) != *weir-guard.service* ]] || fail 'readiness names the unit'
  systemctl restart nftables.service
  until_true 20 grows || fail 'the allowed packets do not pass after a restart of nftables'
  until_true 20 guard_stands || fail 'the guard does not stand after a restart of nftables'
  report 'after nftables restarted beside Weir' <(counts)
  systemctl stop weir.service
  nft flush ruleset
  until_true 20 grows || fail 'the allowed packets do not pass without Weir'
  report 'after Weir stopped and the rules were flushed' <(counts)
  [ "$(count server denied)+$(count right denied)" = 0+0 ] || fail 'denied packets were forwarded'
}

"$1"
