# Functions of release-test.sh: a node that forwards between a client and a server, in network namespaces.
# shellcheck shell=bash

in_namespace() { nsenter --net="/run/netns/$1" "${@:2}"; }

# Makes the namespaces. The server has two addresses, 10.77.2.2 and 10.77.2.3.
network() {
  local side name port net
  mount -t tmpfs tmpfs /run
  for name in client node server; do ip netns add "$name"; done
  for side in 'client lan0 10.77.1' 'server wan0 10.77.2'; do
    read -r name port net <<<"$side"
    ip -n node link add "$port" type veth peer name eth0 netns "$name"
    ip -n node addr add "$net.1/24" dev "$port"
    ip -n node link set "$port" up
    ip -n "$name" addr add "$net.2/24" dev eth0
    ip -n "$name" link set eth0 up
    ip -n "$name" route add default via "$net.1"
  done
  ip -n node link set lo up
  ip -n server addr add 10.77.2.3/24 dev eth0
  in_namespace node sysctl -q net.ipv4.ip_forward=1
}

# Usage: mount_system ROOT: mounts what an init system or a container runtime mounts.
mount_system() {
  mount --bind "$1" "$1"
  mount -t proc proc "$1/proc"
  in_namespace node mount -t sysfs sysfs "$1/sys"
  mount -t bpf -o mode=700 bpf "$1/sys/fs/bpf" # as systemd does
  mount -t tmpfs tmpfs "$1/tmp"
}

# Usage: configure ROOT: writes a configuration with a policy that allows echo requests to 10.77.2.2 alone.
configure() {
  mkdir -p "$1/etc/weir"
  cat >"$1/etc/weir/weir.yaml" <<'END'
version: 1
node: { id: release-test }
dataplane: { interfaces: [lan0, wan0] }
policy: { file: /etc/weir/policy.yaml }
END
  cat >"$1/etc/weir/policy.yaml" <<'END'
mode: enforce
name: ping
policy:
  default_policy: deny
  source_groups:
    - id: lan
      sources: { cidrs: [10.77.1.0/24] }
      rules: [{ id: ping, action: allow, match: { dst_ips: [10.77.2.2], proto: icmp } }]
END
}

reaches() { in_namespace client ping -q -n -c 3 -i 0.1 -W 1 "$1"; }
is_enforced() { reaches 10.77.2.2 && ! reaches 10.77.2.3; }
is_open() { reaches 10.77.2.2 && reaches 10.77.2.3; }

# Usage: start_node COMMAND…: starts a node, and waits until it is ready: the policy of its file is in force.
start_node() {
  local begin=${EPOCHREALTIME/./} ready
  nsenter --net=/run/netns/node "$@" >"$work/node.log" 2>&1 &
  node=$!
  for _ in {1..600}; do
    ready=$(in_namespace node curl -s --max-time 5 http://127.0.0.1:8080/ready || true)
    if [[ $ready == *'"ready":true'* ]]; then
      echo "ready after $(((${EPOCHREALTIME/./} - begin) / 1000)) ms" >"$work/start"
      return 0
    fi
    sleep 0.05
  done
  echo "$ready"
  cat "$work/node.log"
  return 1
}

stop_node() {
  kill -TERM "$node"
  wait "$node" || true
}

has_five_capabilities() {
  local each
  for each in CapPrm CapEff CapBnd; do is "$(awk "/^$each/ { print \$2 }" "/proc/$node/status")" 000000c000003400 || return 1; done
}

# Usage: enforces NAME COMMAND…: starts a node with the command, twice.
enforces() {
  local name=$1
  shift
  check "$name: all packets pass before the first start" is_open
  check "$name: the node starts" start_node "$@"
  echo "release-test: $name: $(cat "$work/start")"
  check "$name: the node has five capabilities" has_five_capabilities
  check "$name: the node enforces" is_enforced
  stop_node
  check "$name: the kernel enforces without the node" is_enforced
  check "$name: the node starts again" start_node "$@"
  echo "release-test: $name: $(cat "$work/start")"
  check "$name: the node enforces again" is_enforced
}
