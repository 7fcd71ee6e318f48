#!/usr/bin/env bash
# The parts of a boot of boot-test.sh; units of systemd run them. `network` makes a client and a server behind
# the node, `traffic` sends from the client without a pause, `before` runs directly before Weir starts, and
# `check` runs after it.
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
say() { echo "boot-test: $*"; }
fail() {
  say "FAILED: $*"
  tail -5 /run/weir.log || true
  exit 1
}
weir() { node "$FOLDER/bin/weir.js" "$@" --config /etc/weir/weir.yaml; }
# Usage: count NAMESPACE NAME: prints the number of packets of a counter.
count() { ip netns exec "$1" nft list counter inet seen "$2" | sed -n 's/.*packets \([0-9]*\) .*/\1/p'; }
# Prints the packets that the client has sent and the server has received, by whether the policy allows them.
counts() { echo "sent $(count client allowed)+$(count client denied) received $(count server allowed)+$(count server denied)"; }
ready() { curl -s --max-time 5 http://127.0.0.1:8080/ready || true; }
# Usage: until_true SECONDS COMMAND…
until_true() {
  local seconds=$1
  shift
  for ((n = 0; n < seconds * 5; n++)); do
    if "$@"; then return 0; fi
    sleep 0.2
  done
  return 1
}
responds() { [ -n "$(ready)" ]; }
is_in_force() { [[ $(ready) == *'"in_force_since":"'* ]]; }
grows() {
  local was
  was=$(count server allowed)
  sleep 1
  [ "$(count server allowed)" -gt "$was" ]
}
guard_stands() { nft list chain inet weir guard >/dev/null 2>&1; }

network() {
  for side in 'client lan0 10.77.1' 'server wan0 10.77.2'; do
    read -r name port net <<<"$side"
    ip netns add "$name"
    ip link add "$port" type veth peer name eth0 netns "$name"
    ip addr add "$net.1/24" dev "$port"
    ip link set "$port" up
    ip -n "$name" addr add "$net.2/24" dev eth0
    ip -n "$name" link set eth0 up
    ip -n "$name" route add default via "$net.1"
    hook=$([ "$name" = client ] && echo output || echo input)
    ip netns exec "$name" nft -f - <<END
table inet seen {
  counter allowed { }
  counter denied { }
  chain packets {
    type filter hook $hook priority 0;
    icmp type echo-request counter name allowed
    udp dport 9 counter name denied
  }
}
END
  done
  sysctl -q net.ipv4.ip_forward=1
}

# The policy allows the echo requests, and denies UDP. A read from a pipe without a writer waits, and needs no
# process, unlike `sleep`.
traffic() {
  mkfifo /run/pause
  exec 3<>/run/pause
  ip netns exec client ping -q -n -i 0.02 10.77.2.2 >/dev/null &
  exec ip netns exec client bash -c 'while :; do echo >/dev/udp/10.77.2.2/9; read -t 0.02 -u 3; done' 2>/dev/null
}

# Runs before Weir starts. The restart of nftables flushes all rules, as its start at boot did.
before() {
  until_true 60 bash -c "[ \"\$(ip netns exec client nft list counter inet seen allowed | sed -n 's/.*packets \([0-9]*\) .*/\1/p')\" -gt 100 ]" || true
  counts >/run/before
  local guard network
  guard=$(systemctl show -P ActiveEnterTimestampMonotonic weir-guard.service)
  network=$(systemctl show -P ActiveEnterTimestampMonotonic boot-test-network.service)
  echo "the guard was loaded $(((network - guard) / 1000)) ms before the interfaces were up" >/run/units
  [ -s /var/lib/weir/guard.nft ] || return 0
  systemctl restart nftables.service
  sleep 1
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
  read -r _ _ _ received </run/before
  say "before Weir started, without the unit: $(cat /run/before)"
  [[ $received != 0+* && $received != *+0 ]] || fail 'nothing was forwarded without the unit: this test shows nothing'
  echo '{"default_policy":"deny","source_groups":[{"id":"lan","sources":{"cidrs":["10.77.1.0/24"]},"rules":[{"id":"ping","action":"allow","match":{"proto":"icmp"}}]}]}' >/run/policy.json
  until_true 20 weir policy apply --name boot --mode enforce -f /run/policy.json || fail 'the policy is refused'
  until_true 20 grows || fail 'the allowed packets do not pass'
  [ -s /var/lib/weir/guard.nft ] || fail 'Weir has not written the boot file'
  [[ $(ready) == *'weir-guard.service is not enabled'* ]] || fail "readiness does not name the unit: $(ready)"
  say "readiness: $(ready | grep -o 'weir-guard.service is[^"]*')"
}

guarded() {
  say "$(cat /run/units)"
  until_true 120 is_in_force || fail 'Weir does not become ready'
  say "before Weir started: $(cat /run/before)"
  say "after nftables restarted, before Weir started: $(cat /run/restarted)"
  for file in /run/before /run/restarted; do
    read -r _ sent _ received <"$file"
    [[ ${sent%+*} -gt 50 && ${sent#*+} -gt 50 ]] || fail "the client has sent too few packets: $sent"
    [ "$received" = 0+0 ] || fail "packets were forwarded before the first policy: $received"
  done
  until_true 20 grows || fail 'the allowed packets do not pass'
  say "with the policy: $(counts)"
  [[ $(ready) != *weir-guard.service* ]] || fail 'readiness names the unit'
  systemctl restart nftables.service
  until_true 20 grows || fail 'the allowed packets do not pass after a restart of nftables'
  until_true 20 guard_stands || fail 'the guard does not stand after a restart of nftables'
  say "after nftables restarted beside Weir: $(counts)"
  systemctl stop weir.service
  nft flush ruleset
  until_true 20 grows || fail 'the allowed packets do not pass without Weir'
  say "after Weir stopped and the rules were flushed: $(counts)"
  [ "$(count server denied)" = 0 ] || fail 'denied packets were forwarded'
}

"$1"
