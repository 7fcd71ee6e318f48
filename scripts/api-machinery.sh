#!/usr/bin/env bash
# Builds an API server from today's Kubernetes libraries (k8s.io/apiserver, Debian sid), once, into a cache
# folder, with etcd of sid beside it. Its own source is test/kubernetes/api-machinery/main.go. Tests use it
# for what kube-apiserver 1.20 does not have: streaming lists, and fields that are newer. The build takes
# some minutes and 5 GB of disk. Options: see `build_once` in debian-build.sh.
#
# Sid has one version at a time, which changes. So the tests take the version that was built, and are left out
# if a later version cannot be built with this source.
source "$(dirname "$0")/usage.sh"
set -euo pipefail

name=api-machinery
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
source_folder=$here/../test/kubernetes/api-machinery
# Increase the last number after a change of the build.
version=$(cat "$source_folder"/*.go | sha256sum | cut -c 1-12)-1
program=api-machinery
kilobytes=5000000
source "$here/debian-build.sh"

download() {
  use_release sid deb
  get install --no-install-recommends --download-only -y golang-go golang-k8s-apiextensions-apiserver-dev golang-k8s-api-dev etcd-server
  for package in "$work"/apt/cache/archives/*.deb; do dpkg-deb -x "$package" "$work/root"; done
}

build() {
  local machinery=k8s.io/apimachinery/pkg
  export GOROOT GOPATH="$work:$work/root/usr/share/gocode" GOCACHE="$work/gocache" GOENV=off GO111MODULE=off GOPROXY=off GOFLAGS='' CGO_ENABLED=0 GOTOOLCHAIN=local
  GOROOT=$(echo "$work"/root/usr/lib/go-1.*)
  PATH="$GOROOT/bin:$PATH"
  mkdir -p "$work/src/weirtest/openapi"
  cp "$source_folder"/*.go "$work/src/weirtest/"
  cd "$work/src/weirtest"
  go build -o "$work/openapi-gen" k8s.io/kube-openapi/cmd/openapi-gen
  : >"$work/header"
  "$work/openapi-gen" --output-dir openapi --output-pkg weirtest/openapi --output-file zz_generated.openapi.go \
    --go-header-file "$work/header" -r "$work/violations" k8s.io/api/{core,apps,rbac}/v1 \
    $machinery/{apis/meta/v1,runtime,version,api/resource,util/intstr}
  go build -p 2 -ldflags '-s -w' -o "$work/bin/api-machinery" weirtest
  cp "$work/root/usr/bin/etcd" "$work/bin/"
}

build_once "$@"
