#!/usr/bin/env bash
# The parts of package-test.sh that run in its virtual machine; units of systemd run them. `network` makes a
# client and a server behind the machine. `count_before_start` runs directly before Weir starts at the last
# boot, and starts `packets`.
# `install`, `upgrade` and `removal` are the tests of the three boots.
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive
source /srv/packet-counters.sh
cd /srv/packages
say() { echo "package-test: $(cut -d. -f1 /proc/uptime) s: $*"; }
fail() {
  say "FAILED: $*"
  journalctl -b --no-pager -n 60 -u weir.service -o cat || true
  weir status || true
  node -e 'fetch("http://127.0.0.1:8080/metrics").then((got) => got.text()).then(console.log)' | grep ^weir_dns || true
  exit 1
}
# Usage: block_at PAGE START: prints the block of the page that begins with START.
block_at() {
  START=$2 awk '!/^```/ { text = text $0 "\n"; next }
    is_open { if (index(text, ENVIRON["START"]) == 1) printf "%s", text }
    { is_open = !is_open; text = "" }' "/srv/$1" | grep . || fail "$1 has no block that begins with $2"
}
client() { ip netns exec client "$@"; }
# Usage: until_true SECONDS COMMAND…
until_true() {
  local until=$((SECONDS + $1))
  shift
  while ((SECONDS < until)); do
    if "$@"; then return 0; fi
    sleep 0.5
  done
  return 1
}
pings() { client ping -q -n -c 2 -i 0.2 -W 5 10.77.2.2 >/dev/null; }
# Whether a TCP packet reaches a port of the server without a listener: the server resets the connection.
reaches() { [[ $(client timeout 8 bash -c "exec 3<>/dev/tcp/10.77.2.2/$1" 2>&1 || true) == *'Connection refused'* ]]; }
# Usage: expect_open PORT…, expect_closed PORT…
expect_open() { for port in "$@"; do reaches "$port" || fail "packets to port $port do not pass"; done; }
expect_closed() { for port in "$@"; do if reaches "$port"; then fail "packets to port $port pass"; fi; done; }
is_ready() { weir status --output json 2>/dev/null | grep -q '"ready": true'; }
# Prints the times from the start of the process until its policy was in force, and until READY=1. The first
# time is 0 if the kernel enforced this policy before.
start_time() {
  local from enforced ready
  from=$(milliseconds "$(systemctl show --timestamp=us+utc -P ExecMainStartTimestamp weir.service)")
  ready=$(milliseconds "$(systemctl show --timestamp=us+utc -P ActiveEnterTimestamp weir.service)")
  enforced=$(node -e 'fetch("http://127.0.0.1:8080/ready").then((got) => got.json()).then((ready) => console.log(Date.parse(ready.in_force_since)))')
  echo "$((enforced > from ? enforced - from : 0)) ms, to READY=1: $((ready - from)) ms"
}
milliseconds() { date --date="$1" +%s%3N; }
counts() { echo "sent $(count client allowed)+$(count client denied), received $(count server allowed)+$(count server denied)"; }

network() {
  local name port net
  for side in 'client lan0 10.77.1' 'server wan0 10.77.2'; do
    read -r name port net <<<"$side"
    ip netns add "$name"
    ip link add "$port" type veth peer name eth0 netns "$name"
    ip addr add "$net.1/24" dev "$port"
    ip link set "$port" up
    ip -n "$name" addr add "$net.2/24" dev eth0
    ip -n "$name" link set lo up
    ip -n "$name" link set eth0 up
    ip -n "$name" route add default via "$net.1"
  done
}

# Sends packets of both kinds until it is stopped.
packets() {
  client ping -q -n -i 0.02 10.77.2.2 >/dev/null &
  client bash -c 'while :; do echo >/dev/udp/10.77.2.2/9; sleep 0.05; done' 2>/dev/null
}

# systemd ends all processes of ExecStartPre= before it starts the node, so another unit sends the packets.
count_before_start() {
  if [ -e /run/package-test.before ]; then return; fi
  count_packets client output
  count_packets server input
  systemd-run --quiet --unit=package-test-packets /srv/package-test-guest.sh packets
  until_true 120 sent_enough || true
  counts >/run/package-test.before
  guard=$(systemctl show -P ActiveEnterTimestampMonotonic weir-guard.service)
  interfaces=$(systemctl show -P ActiveEnterTimestampMonotonic package-test-network.service)
  echo "the guard was loaded $(((interfaces - guard) / 1000)) ms before the interfaces were up" >>/run/package-test.before
}
sent_enough() { [ "$(count client allowed)" -ge 100 ] && [ "$(count client denied)" -ge 50 ]; }

A=$(ls weir_*+test1_*.deb) B=$(ls weir_*+test2_*.deb)
# Usage: install_package PACKAGE COMMAND: installs the package, under the name that the command has for it.
install_package() {
  local began=$SECONDS
  cp "$1" "$(grep -o 'weir_[^ ]*\.deb' <<<"$2")"
  sh -c "$2" >/run/apt.log 2>&1 </dev/null || {
    tail -30 /run/apt.log
    fail "$2"
  }
  say "$2 ($1): $((SECONDS - began)) s"
}
# Usage: replace PACKAGE COMMAND: installs the package under traffic.
replace() {
  local main seen
  main=$(systemctl show -P MainPID weir.service)
  rm -f /run/stop
  client nice -n -10 node /srv/package-test-traffic.mjs client /run/stop >/run/traffic.json 2>/run/traffic.log &
  until_true 60 grep -q ready /run/traffic.log || fail 'the names are not resolved'
  sleep 5
  install_package "$1" "$2"
  until_true 120 is_ready || fail 'the node is not ready after the change'
  [ "$(systemctl show -P MainPID weir.service)" != "$main" ] || fail 'the node was not restarted'
  sleep 5
  touch /run/stop
  wait $! || fail "the traffic ended: $(cat /run/traffic.log)"
  seen=$(cat /run/traffic.json)
  say "$(weir --version): $seen"
  [ "$(cat /run/traffic.log)" = ready ] || fail "$(cat /run/traffic.log)"
  [[ $seen == *'"udp":{"sent":'*',"lost":0},"tcp":{"sent":'*',"lost":0},"lookups":{"sent":'*',"unanswered":0,"failed":0,'* ]] || fail 'packets or lookups were lost'
  say "start to enforcing: $(start_time)"
}

install() {
  say "$(. /etc/os-release && echo "$PRETTY_NAME"), Linux $(uname -r), $(systemctl --version | head -1)"
  apt-get update -qq
  pings || fail 'nothing is forwarded without Weir'
  local lines
  mapfile -t lines < <(block_at docs/install.md 'apt install ./weir_0.1.0_amd64.deb')
  [ "${#lines[@]}" = 2 ] || fail "docs/install.md installs by ${lines[*]}"
  install_package "$A" "${lines[0]}"
  say "node $(node --version), weir $(weir --version)"
  systemctl is-active -q weir.service && fail 'the installation starts the node'
  [ ! -e /etc/weir/weir.yaml ] || fail 'the installation configures the node'
  [ -z "$(nft list tables)" ] || fail "the installation makes tables: $(nft list tables)"
  pings || fail 'nothing is forwarded after the installation'
  expect_open 9
  say 'installed: nothing is enforced, and packets pass'

  if weir init --interfaces lan9,wan0 2>/run/refused; then fail 'weir init accepts an interface that does not exist'; fi
  say "$(head -1 /run/refused)"
  [ ! -e /etc/weir/weir.yaml ] || fail 'weir init writes files for an interface that does not exist'
  sh -c "${lines[1]}" | sed 's/^/  /' || fail "${lines[1]}"
  systemctl is-active -q weir.service || fail 'the unit is not active'
  is_ready || fail 'the node is not ready'
  [ "$(stat -c '%a %U:%G' /etc/weir/weir.yaml)" = '640 root:weir' ] || fail 'the mode of weir.yaml'
  [ "$(stat -c '%a %U:%G' /sys/fs/bpf)" = '1750 root:weir' ] || fail "the mode of /sys/fs/bpf: $(stat -c '%a %U:%G' /sys/fs/bpf)"
  pings || fail 'a trial drops packets'
  expect_open 9
  until_true 30 finds || fail 'the trial records no finding'
  say "trial: packets pass and are recorded; start to enforcing: $(start_time)"
  say "$(systemctl show -P User -P WatchdogUSec weir.service | xargs) $(grep -h CapEff "/proc/$(systemctl show -P MainPID weir.service)/status" | xargs)"
  systemd-analyze security weir.service --no-pager | tail -1 || true

  cat >/etc/weir/policy.yaml <<END
name: gateway
mode: audit
policy:
  default_policy: deny
  source_groups:
    - id: lan
      sources: { cidrs: [10.77.1.0/24] }
      rules:
        - { id: ping, action: allow, match: { proto: icmp } }
        - { id: udp, action: allow, match: { proto: udp, dst_ports: [9000], dst_ips: [10.77.2.2] } }
        - { id: tcp, action: allow, match: { proto: tcp, dst_ports: [9001, 9002], dst_ips: [10.77.2.2] } }
END
  weir policy apply -f /etc/weir/policy.yaml --mode enforce --wait | sed 's/^/  /' || fail 'weir policy apply'
  pings || fail 'allowed packets do not pass'
  expect_open 9002
  expect_closed 9
  say 'enforced: an allowed packet passes, and another one does not'
  restore
}

# Makes a backup, and restores it on this machine, and as if this machine were a new one.
restore() {
  local enforced='weir policy get --output yaml' policy said
  sh -ec "$(block_at docs/install.md $'systemctl stop weir\n(umask')" || fail 'the backup'
  [ "$(stat -c %a weir-backup.tar.gz)" = 600 ] || fail 'the mode of the backup'
  is_ready || fail 'the node is not ready after the backup'
  policy=$($enforced)
  sed -i 's/9001, 9002/9001/' /etc/weir/policy.yaml
  weir policy apply -f /etc/weir/policy.yaml --mode enforce --wait >/run/apply.log || fail 'weir policy apply'
  expect_closed 9002
  sh -ec "$(block_at docs/install.md $'systemctl stop weir\nrm')" || fail 'the restore'
  [[ $(weir status) == *'the kernel enforces generation '*', but the newest generation in the data folder is '* ]] || fail 'weir status names no newer policy'
  expect_closed 9002
  sh -ec "$(block_at docs/install.md 'weir policy activate gateway')" || fail 'weir policy activate'
  until_true 30 is_ready || fail 'the node is not ready with the restored policy'
  [ "$($enforced)" = "$policy" ] || fail "the restored policy is $($enforced), not $policy"
  expect_open 9002
  say 'restored: the newer policy stays in force until the restored one is activated'

  systemctl disable -q --now weir.service weir-guard.service
  weir dataplane detach >/run/detach.log || fail "weir dataplane detach: $(cat /run/detach.log)"
  rm -rf /etc/weir/*
  sed -i -E 's/^(weir:[^:]*):[0-9]+:[0-9]+:/\1:444:444:/' /etc/passwd
  sed -i -E 's/^(weir:[^:]*):[0-9]+:/\1:444:/' /etc/group
  sh -ec "$(block_at docs/install.md $'systemctl stop weir\nrm')" || fail 'the restore on a new machine'
  sh -ec "$(block_at docs/install.md 'chgrp weir')" || fail 'the commands for a new machine'
  until_true 30 is_ready || fail 'the node is not ready on a new machine'
  systemctl is-enabled -q weir.service weir-guard.service || fail 'the units are not enabled'
  [ "$($enforced)" = "$policy" ] || fail "the policy of the new machine is $($enforced), not $policy"
  [ "$(stat -c '%a %U:%G' /etc/weir/weir.yaml)" = '640 root:weir' ] || fail 'the owner of the restored weir.yaml'
  said=$(stat -c '%u:%g' /var/lib/weir/store)
  [ "$said" = 444:444 ] || fail "the owner of the restored store is $said"
  expect_open 9002
  expect_closed 9
  say 'restored on a new machine: the policy of the backup is in force'
}
finds() { weir findings --output json | grep -q '"effective_action": "allow"'; }

upgrade() {
  until_true 300 is_ready || fail 'the node does not become ready after the boot'
  ip netns exec server nice -n -10 node /srv/package-test-traffic.mjs server &
  sleep 8
  echo "        - { id: names, action: allow, match: { proto: tcp, dst_ports: [443], dns_hostname: '*.example.com' } }" >>/etc/weir/policy.yaml
  # QEMU emulates the CPU: an activation can last longer than the 5 s of the default.
  sed -i 's/^policy:$/&\n  activation_timeout: 2m/' /etc/weir/weir.yaml
  printf 'dns:\n  listen: ["10.77.1.1:53"]\n  upstreams: ["10.77.2.2:53"]\n' >>/etc/weir/weir.yaml
  weir init --interfaces lan0,wan0 --mode enforce --force | sed 's/^/  /' || fail 'weir init --force'
  grep -q 'fallback: deny' /etc/weir/weir.yaml || fail 'weir init --force does not end the trial'
  weir policy apply -f /etc/weir/policy.yaml --wait | sed 's/^/  /' || fail 'weir policy apply'
  expect_closed 9
  local lines
  mapfile -t lines < <(block_at docs/install.md 'apt install ./weir_0.2.0_amd64.deb')
  [ "${#lines[@]}" = 3 ] || fail "docs/install.md upgrades by ${lines[*]}"
  replace "$B" "${lines[0]}"
  replace "$A" "${lines[1]}"
  sh -c "${lines[2]}" >/run/status.log || fail "${lines[2]}: $(cat /run/status.log)"
  expect_open 9002
  expect_closed 9
  mkdir -p /etc/systemd/system/weir.service.d
  printf '[Unit]\nAfter=package-test-network.service\n[Service]\nTimeoutStartSec=10min\nExecStartPre=+/srv/package-test-guest.sh count_before_start\n' >/etc/systemd/system/weir.service.d/package-test.conf
}

removal() {
  until_true 300 is_ready || fail 'the node does not become ready after the boot'
  local before
  before=$(head -1 /run/package-test.before)
  say "$(tail -1 /run/package-test.before)"
  say "before Weir started: $before"
  [[ $before =~ ^sent\ ([0-9]+)\+([0-9]+),\ received\ 0\+0$ && ${BASH_REMATCH[1]} -ge 100 && ${BASH_REMATCH[2]} -ge 50 ]] ||
    fail 'packets were forwarded before the policy, or too few were sent'
  until_true 20 pings || fail 'allowed packets do not pass'
  sleep 2
  say "with the policy: $(counts); start to enforcing: $(start_time)"
  [ "$(count server denied)" = 0 ] || fail 'denied packets were forwarded'

  refuse_configuration
  local main watched=$SECONDS
  main=$(systemctl show -P MainPID weir.service)
  kill -STOP "$main"
  until_true 150 replaced "$main" || fail 'the watchdog does not end a stopped node'
  until_true 120 is_ready || fail 'the node is not ready after the watchdog has ended it'
  say "the watchdog replaced a stopped node, which was ready again $((SECONDS - watched)) s after it was stopped"

  apt-get remove -y -qq weir >/run/apt.log 2>&1 || fail "apt remove: $(cat /run/apt.log)"
  tail -2 /run/apt.log | sed 's/^/  /'
  pings || fail 'allowed packets do not pass after apt remove'
  expect_open 9002
  expect_closed 9
  [ "$(count server denied)" = 0 ] || fail 'denied packets were forwarded'
  say "removed: the kernel enforces: $(counts)"
  apt-get purge -y -qq weir >/run/apt.log 2>&1 || fail "apt purge: $(cat /run/apt.log)"
  expect_open 9 9002
  [ ! -e /sys/fs/bpf/weir ] || fail "pins are left: $(ls /sys/fs/bpf/weir)"
  [ -z "$(nft list tables)" ] || fail "tables are left: $(nft list tables)"
  [ ! -e /etc/weir ] && [ ! -e /var/lib/weir ] || fail 'files are left'
  until_true 20 passes_denied || fail 'packets do not pass after apt purge'
  say 'purged: nothing is attached, and packets pass'
}

# Restarts the node with a configuration that is not valid, and then with the valid one.
refuse_configuration() {
  local asked said
  cp -a /etc/weir/weir.yaml /run/weir.yaml
  echo 'surprise: 1' >>/etc/weir/weir.yaml
  if systemctl restart weir.service 2>/dev/null; then fail 'a node starts with an unknown key'; fi
  sleep 2
  said=$(systemctl show -P NRestarts -P ExecMainStatus -P ActiveState weir.service | xargs)
  [ "$said" = '0 78 failed' ] || fail "the unit with a configuration that is not valid: $said"
  asked=$SECONDS
  if said=$(weir status 2>&1); then fail 'weir status succeeds without a node'; fi
  # QEMU needs 5 s for a command. A command that waits for an answer ends after 30 s.
  ((SECONDS - asked <= 15)) || fail "weir status took $((SECONDS - asked)) s without a node"
  [[ $said == *'weir.service has failed: `journalctl -u weir` shows why'* ]] || fail "weir status: $said"
  say 'an unknown key stops the unit; weir status:'
  sed 's/^/  /' <<<"$said"
  pings || fail 'allowed packets do not pass while the node is stopped'
  expect_closed 9
  cp -a /run/weir.yaml /etc/weir/weir.yaml
  systemctl start weir.service || fail 'the node does not start with the valid configuration'
  said=$(weir status 2>&1) || [ $? = 3 ] || fail "weir status directly after the start: $said"
  until_true 60 is_ready || fail 'the node is not ready with the valid configuration'
}
replaced() { local now; now=$(systemctl show -P MainPID weir.service) && [ "$now" != 0 ] && [ "$now" != "$1" ]; }
passes_denied() { [ "$(count server denied)" -gt 0 ]; }

"$1"
[[ $1 != @(install|upgrade|removal) ]] || say passed
