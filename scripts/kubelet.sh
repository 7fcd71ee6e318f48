#!/usr/bin/env bash
# Builds the programs of a Kubernetes node for kubelet-test.sh, once, into a cache folder: the kubelet, the
# controller manager and the scheduler of Kubernetes 1.20.2 from Debian's source package, and the image of
# the sandbox of a pod. Adds containerd, runc and network plugins of Debian 12. The build takes some minutes
# and 5 GB of disk. Options: see `build_once` in debian-build.sh.
set -euo pipefail

name=kubelet
version=1.20.2-1
program=kubelet
kilobytes=5000000
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
source "$here/debian-build.sh"
source "$here/kubernetes-source.sh"

download() { download_kubernetes containerd runc containernetworking-plugins; }

build() {
  build_kubernetes kubelet kube-controller-manager kube-scheduler
  mv "$work"/root/usr/bin/{containerd,containerd-shim-runc-v2,ctr} "$work/root/usr/sbin/runc" "$work/bin/"
  mkdir "$work/bin/cni"
  mv "$work"/root/usr/lib/cni/{bridge,host-local,loopback} "$work/bin/cni/"
  sandbox_image
}

# Makes the image of the first container of each pod, which holds its network namespace.
sandbox_image() {
  mkdir "$work/pause"
  clang -static -Os -s -o "$work/pause/pause" "$work/kubernetes-$release/build/pause/linux/pause.c"
  cd "$work/pause"
  tar --create --file=layer.tar pause
  printf '{"architecture":"%s","os":"linux","config":{"Entrypoint":["/pause"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$(dpkg --print-architecture)" "$(sha256sum layer.tar | cut -d ' ' -f 1)" >config.json
  echo '[{"Config":"config.json","RepoTags":["docker.io/library/pause:1"],"Layers":["layer.tar"]}]' >manifest.json
  tar --create --file="$work/bin/pause.tar" manifest.json config.json layer.tar
}

build_once "$@"
