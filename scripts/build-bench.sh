#!/usr/bin/env bash
# Compiles what only the benchmarks run, where a source is newer: BPF programs → dist/bpf/, C programs → dist/bench/.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/llvm.sh
clang=$(find_tool clang)
mkdir -p dist/bpf dist/bench/forward
for source in bench/forward/*.bpf.c; do
  object=dist/bpf/$(basename "$source" .c).o
  if [[ $object -nt $source ]]; then continue; fi
  "$clang" -O2 -g -Wall -Werror -target bpf -mcpu=v3 -I"/usr/include/$(uname -m)-linux-gnu" -c "$source" -o "$object"
  echo "build-bench: $object"
done
program=dist/bench/forward/connections
if [[ ! $program -nt bench/forward/connections.c ]]; then
  "$clang" -O2 -Wall -Werror bench/forward/connections.c -o "$program"
  echo "build-bench: $program"
fi
