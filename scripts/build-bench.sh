#!/usr/bin/env bash
# Compiles each C file of the benchmarks that is newer than its result: BPF programs to dist/bpf/, and other C
# programs to dist/bench/.
set -euo pipefail
cd "$(dirname "$0")/.."

source scripts/llvm.sh
clang=$(find_tool clang)
mkdir -p dist/bpf dist/bench/forward dist/bench/observe dist/bench/splice
for source in bench/*/*.bpf.c; do
  object=dist/bpf/$(basename "$source" .c).o
  if [[ $object -nt $source ]]; then continue; fi
  "$clang" -O2 -g -Wall -Werror -target bpf -mcpu=v3 -I"/usr/include/$(uname -m)-linux-gnu" -c "$source" -o "$object"
  echo "build-bench: $object"
done
for source in bench/*/*.c; do
  if [[ $source == *.bpf.c ]]; then continue; fi
  program=dist/${source%.c}
  if [[ $program -nt $source ]]; then continue; fi
  "$clang" -O2 -Wall -Werror "$source" -o "$program"
  echo "build-bench: $program"
done
