#!/usr/bin/env bash
# Compiles the datapath to dist/bpf/weir.bpf.o, its part for IPv6 to dist/bpf/weir_ipv6.bpf.o, and the BPF
# program that reads third-party hooks to dist/bpf/third_party_hooks.bpf.o. Does nothing if weir.bpf.o is
# newer than all sources and this script.
set -euo pipefail
cd "$(dirname "$0")/.."

sources=src/dataplane/bpf
last=dist/bpf/weir.bpf.o

if [[ -f $last && -z $(find "$sources" scripts/build-bpf.sh -newer "$last" -type f -print -quit) ]]; then
  exit 0
fi

source scripts/llvm.sh
if ! clang=$(find_tool clang) || ! strip=$(find_tool llvm-strip) || [[ ! -e /usr/include/bpf/bpf_helpers.h ]]; then
  # Exit with 0: without the BPF objects a node still serves the API, and reports that the datapath is
  # missing.
  echo "build-bpf: the datapath is not compiled: clang, llvm-strip or libbpf-dev is missing (Debian: clang llvm libbpf-dev)." >&2
  exit 0
fi

mkdir -p dist/bpf
# The paths in the objects are relative, so that each folder gives the same bytes.
for name in third_party_hooks weir_ipv6 weir; do
  object=dist/bpf/$name.bpf.o
  "$clang" -O2 -g -Wall -Werror -target bpf -mcpu=v3 -ffile-prefix-map="$PWD=." -I"/usr/include/$(uname -m)-linux-gnu" \
    -c "$sources/$name.bpf.c" -o "$object.new"
  "$strip" -g "$object.new"
  mv "$object.new" "$object"
  echo "build-bpf: $object"
done
