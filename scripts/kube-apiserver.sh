#!/usr/bin/env bash
# Builds a Kubernetes API server (kube-apiserver 1.20.2) from Debian's source package, once, into a cache
# folder, with Debian's kubectl beside it. Tests start the server with etcd and without a kubelet. The build
# takes some minutes, 1.3 GiB of memory and 5 GB of disk. Options: see `build_once` in debian-build.sh.
source "$(dirname "$0")/usage.sh"
set -euo pipefail

name=kube-apiserver
version=1.20.2-1
program=kube-apiserver
kilobytes=5000000
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
source "$here/debian-build.sh"
source "$here/kubernetes-source.sh"

download() { download_kubernetes kubernetes-client; }

build() {
  build_kubernetes kube-apiserver
  mv "$work/root/usr/bin/kubectl" "$work/bin/"
}

build_once "$@"
