#!/usr/bin/env bash
# Builds a Kubernetes API server (kube-apiserver 1.20.2) from Debian's source package, once, into a cache
# folder, with Debian's kubectl beside it. Tests start the server with etcd and without a kubelet. The build
# takes some minutes, 1.3 GiB of memory and 5 GB of disk. apt gets its own folders, so that the lists and
# packages of the machine stay unchanged. Prints one line with the reason where the server cannot be built.
#   --folder         prints the folder of the programs, and builds nothing
#   --unless-failed  builds nothing if a build has failed within a day
set -euo pipefail

version=1.20.2
cache=/var/cache/weir-kube-apiserver
# Increase the last number after a change of the build.
bin=$cache/$version-1
if [ "${1:-}" = --folder ]; then
  echo "$bin"
  exit 0
fi
built() { [ -x "$bin/kube-apiserver" ]; }
if built; then exit 0; fi

give_up() {
  echo "kube-apiserver: $*" >&2
  exit 1
}
for command in apt-get dpkg-deb flock; do
  command -v "$command" >/dev/null || give_up "there is no $command: the server is built from packages of Debian."
done
[ -w "${cache%/*}" ] || give_up "the user $(id -un) may not write to ${cache%/*}."
key=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$key" ] || give_up "there is no $key, with which apt checks the packages of Debian."
mirror=$(apt-get indextargets --format '$(SITE)' 'Label: Debian' | sort | uniq -c | sort -rn | awk 'NR == 1 { print $2 }') || mirror=
[ -n "$mirror" ] || give_up "the sources of apt name no mirror of Debian, or apt-get update has not run."

failure=$cache/failed-${bin##*/}
if [ "${1:-}" = --unless-failed ] && [ -n "$(find "$failure" -mmin -1440 2>/dev/null)" ]; then
  give_up "a build has failed within a day ($(cat "$failure")); npm run kube-apiserver tries again."
fi

mkdir -p "$cache"
# A second call waits for the first one.
exec 9>"$cache/lock"
flock -w 1200 9 || give_up "another build has not ended for 20 minutes."
if built; then exit 0; fi
[ "$(df --output=avail -k "$cache" | tail -1)" -ge 5000000 ] || give_up "$cache has less than 5 GB of free space."

work=$cache/build
log=$cache/build.log
rm -rf "$work"
trap 'rm -rf "$work"' EXIT

get() {
  apt-get -q -o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$work/apt/lists" \
    -o Dir::Cache="$work/apt/cache" -o APT::Sandbox::User= -o Acquire::http::Timeout=20 -o Acquire::Retries=1 "$@"
}

download() {
  mkdir -p "$work"/{apt/lists/partial,apt/cache/archives/partial,packages,root,bin,gopath/src/k8s.io}
  # Bookworm is the last release of Debian whose source package holds the server.
  for kind in deb deb-src; do echo "$kind [signed-by=$key] $mirror bookworm main"; done >"$work/apt/sources.list"
  get -o APT::Update::Error-Mode=any update
  cd "$work/packages"
  get download golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev kubernetes-client
  get source --download-only kubernetes
  for package in *.deb; do dpkg-deb -x "$package" "$work/root"; done
  tar xzf kubernetes_1.20.*.orig.tar.gz -C "$work"
}

build() {
  local tree=$work/kubernetes-$version pkg=k8s.io/kubernetes packages
  # reflect2 1.0.1 of the tree crashes under Go 1.18 or later, when the server encodes the first large list.
  rm -f "$tree"/vendor/github.com/modern-go/reflect2/*.{go,s}
  cp "$work"/root/usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} "$tree/vendor/github.com/modern-go/reflect2/"
  ln -s "$tree" "$work/gopath/src/$pkg"
  cd "$work/gopath/src/$pkg"
  export GOROOT="$work/root/usr/lib/go-1.19" GOPATH="$work/gopath" GOCACHE="$work/gocache" GOENV=off GO111MODULE=off GOPROXY=off GOFLAGS='' CGO_ENABLED=0
  PATH="$GOROOT/bin:$PATH"
  # The source package lacks one generated package.
  go build -o "$work/bin/openapi-gen" $pkg/vendor/k8s.io/kube-openapi/cmd/openapi-gen
  packages=$(grep -rl --include='*.go' '+k8s:openapi-gen=' pkg cmd plugin staging/src/k8s.io |
    grep -vE 'code-generator/|sample-apiserver/|kube-openapi|zz_generated|_test.go|_examples' |
    xargs -n1 dirname | sort -u | sed "s#^staging/src/#vendor/#; s#^#$pkg/#" | paste -sd,)
  "$work/bin/openapi-gen" -i "$packages" -p $pkg/pkg/generated/openapi -O zz_generated.openapi \
    -h hack/boilerplate/boilerplate.generatego.txt -r "$work/violations.txt"
  local v=$pkg/vendor/k8s.io/component-base/version
  go build -p 2 -ldflags "-s -w -X $v.gitVersion=v$version -X $v.gitMajor=1 -X $v.gitMinor=20" -o "$work/bin/kube-apiserver" $pkg/cmd/kube-apiserver
  "$work/bin/kube-apiserver" --version | grep -qF "v$version"
}

echo "kube-apiserver: building $version, which takes some minutes"
# Not a condition, in which bash ignores -e.
set +e
(
  set -e
  download
  build
) >"$log" 2>&1 9>&-
status=$?
set -e
if [ "$status" != 0 ]; then
  tail -1 "$log" >"$failure"
  give_up "the build failed, see $log: $(tail -1 "$log")"
fi
rm -f "$failure"
mv "$work/root/usr/bin/kubectl" "$work/bin/"
rm "$work/bin/openapi-gen"
rm -rf "$bin"
mv "$work/bin" "$bin"
rm "$log"
