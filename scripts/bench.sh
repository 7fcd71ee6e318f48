#!/usr/bin/env bash
# Runs all benchmarks, or only those whose names are the arguments. Prints a table for each benchmark, and
# writes the results as JSON to bench/results/.
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh --bench
bash scripts/build-bench.sh
# The benchmark inspection-memory needs two file descriptors for each of 10,000 connections.
ulimit -n 65536 2>/dev/null || printf 'bench: the limit of open files stays %s; inspection-memory needs 21000\n' "$(ulimit -n)" >&2
exec node --expose-gc dist/bench/main.js "$@"
