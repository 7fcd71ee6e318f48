# Sourced by the scripts that build programs of Kubernetes 1.20.2 from Debian's source package, after
# debian-build.sh. Bookworm is the last release of Debian whose source package holds them.
# shellcheck shell=bash

release=1.20.2
go_packages=(golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev)

# Downloads the source package and packages of Bookworm, and unpacks them to `$work`.
download_kubernetes() {
  use_release bookworm deb deb-src
  mkdir -p "$work"/{packages,gopath/src/k8s.io}
  cd "$work/packages"
  get download "${go_packages[@]}" "$@"
  get source --download-only kubernetes
  for package in *.deb; do dpkg-deb -x "$package" "$work/root"; done
  tar xzf kubernetes_1.20.*.orig.tar.gz -C "$work"
}

# Builds the given programs.
build_kubernetes() {
  local tree=$work/kubernetes-$release pkg=k8s.io/kubernetes packages program
  # reflect2 1.0.1 of the tree crashes under Go 1.18 or later, when the server encodes the first large list.
  rm -f "$tree"/vendor/github.com/modern-go/reflect2/*.{go,s}
  cp "$work"/root/usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} "$tree/vendor/github.com/modern-go/reflect2/"
  ln -s "$tree" "$work/gopath/src/$pkg"
  cd "$work/gopath/src/$pkg"
  export GOROOT="$work/root/usr/lib/go-1.19" GOPATH="$work/gopath" GOCACHE="$work/gocache" GOENV=off GO111MODULE=off GOPROXY=off GOFLAGS='' CGO_ENABLED=0
  PATH="$GOROOT/bin:$PATH"
  # The source package lacks one generated package.
  go build -o "$work/openapi-gen" $pkg/vendor/k8s.io/kube-openapi/cmd/openapi-gen
  packages=$(grep -rl --include='*.go' '+k8s:openapi-gen=' pkg cmd plugin staging/src/k8s.io |
    grep -vE 'code-generator/|sample-apiserver/|kube-openapi|zz_generated|_test.go|_examples' |
    xargs -n1 dirname | sort -u | sed "s#^staging/src/#vendor/#; s#^#$pkg/#" | paste -sd,)
  "$work/openapi-gen" -i "$packages" -p $pkg/pkg/generated/openapi -O zz_generated.openapi \
    -h hack/boilerplate/boilerplate.generatego.txt -r "$work/violations.txt"
  local v=$pkg/vendor/k8s.io/component-base/version
  for program in "$@"; do
    go build -p 2 -ldflags "-s -w -X $v.gitVersion=v$release -X $v.gitMajor=1 -X $v.gitMinor=20" -o "$work/bin/$program" "$pkg/cmd/$program"
    "$work/bin/$program" --version | grep -qF "v$release"
  done
}
