#!/usr/bin/env bash
# Runs the benchmarks, or those named by the arguments. Prints tables and writes JSON to bench/results/.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh --bench
bash scripts/build-bench.sh
# inspection-memory needs two descriptors for each of 10,000 connections.
ulimit -n 65536 2>/dev/null || printf 'bench: the limit of open files stays %s; inspection-memory needs 21000\n' "$(ulimit -n)" >&2
exec node --expose-gc dist/bench/main.js "$@"
