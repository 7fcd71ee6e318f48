#!/usr/bin/env bash
# Runs the DaemonSet of deploy/kubernetes on a real node of Kubernetes: etcd, API server, controller manager,
# scheduler, kubelet, containerd, runc and a bridge with pods. Needs root and cgroup v1. Leaves nothing
# behind: processes, mounts, networks and pins are in namespaces of its own.
#   scripts/kubelet-test.sh [IMAGE.tar]  tests this image; else builds it from this tree
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "${1:-}" != inside ]; then
  bash scripts/setup.sh --test
  bash scripts/kube-apiserver.sh
  bash scripts/kubelet.sh
  work=$(mktemp -d)
  group=weir-kubelet-test-$$
  mapfile -t hierarchies < <(findmnt -rno TARGET -t cgroup)
  clean_up() {
    local hierarchy
    for hierarchy in "${hierarchies[@]}"; do
      # A process that was killed leaves its cgroup some moments later.
      for _ in {1..50}; do
        [ -d "$hierarchy/$group" ] || break
        find "$hierarchy/$group" -depth -type d -exec rmdir {} \; 2>/dev/null || sleep 0.2
      done
    done
    rm -rf "$work"
  }
  trap clean_up EXIT
  [ "${#hierarchies[@]}" -gt 0 ] || { echo 'kubelet-test: no hierarchy of cgroup v1 is mounted' >&2 && exit 1; }
  image=${1:-}
  if [ -z "$image" ]; then
    bash scripts/setup.sh --release
    bash scripts/release.sh "$work/release" image >"$work/release.log" 2>&1 || { tail -20 "$work/release.log" && exit 1; }
    image=$(echo "$work"/release/weir-*-oci.tar)
  fi
  for hierarchy in "${hierarchies[@]}"; do
    mkdir "$hierarchy/$group"
    for file in cpuset.cpus cpuset.mems; do
      [ ! -e "$hierarchy/$file" ] || cat "$hierarchy/$file" >"$hierarchy/$group/$file"
    done
  done
  # The cgroups of this process become the roots of the cgroup namespace.
  (
    for hierarchy in "${hierarchies[@]}"; do echo "$BASHPID" >"$hierarchy/$group/cgroup.procs"; done
    exec unshare --net --mount --pid --uts --ipc --cgroup --fork --kill-child --mount-proc bash "$0" inside "$work" "$(realpath "$image")"
  )
  exit
fi

work=$2
export WEIR_TEST_IMAGE=$3
# Sysctls that the kubelet sets, and that belong to the whole machine: it finds its values.
mkdir "$work/sysctl"
while read -r name value; do
  file=$work/sysctl/${name//\//.}
  echo "$value" >"$file"
  mount --bind "$file" "/proc/sys/$name"
done <<'END'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /sys/fs/cgroup
while IFS=: read -r _ controllers _; do
  [ -n "$controllers" ] || continue
  folder=/sys/fs/cgroup/${controllers#name=}
  mkdir "$folder"
  case "$controllers" in name=*) controllers=none,$controllers ;; esac
  mount -t cgroup -o "$controllers" cgroup "$folder"
done </proc/self/cgroup
mount -t bpf -o mode=700 bpf /sys/fs/bpf
for folder in lib log; do
  mkdir "$work/$folder"
  mount --bind "$work/$folder" "/var/$folder"
done
mount -t tmpfs tmpfs /run
# A mount of a pod with HostToContainer needs a shared mount on the node.
mount --make-rshared /

# The pods reach a host outside of the cluster by way of the node.
ip link set lo up
ip netns add outside
ip link add wan0 type veth peer name eth0 netns outside
ip addr add 10.9.0.1/24 dev wan0
ip link set wan0 up
ip -n outside addr add 10.9.0.2/24 dev eth0
ip -n outside link set lo up
ip -n outside link set eth0 up
ip -n outside route add default via 10.9.0.1
sysctl -q net.ipv4.ip_forward=1
bin=$(bash scripts/kubelet.sh --folder)
export PATH=$bin:$PATH WEIR_KUBELET_BIN=$bin TMPDIR=$work
npx --no-install vitest run --mode kubelet --reporter=verbose
