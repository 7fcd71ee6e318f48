#!/usr/bin/env bash
# Runs the benchmarks, or those named by the arguments. Prints tables and writes JSON to bench/results/.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh --bench
bash scripts/build-bench.sh
exec node --expose-gc dist/bench/main.js "$@"
