#!/usr/bin/env bash
# Every benchmark: tables on the terminal, JSON in bench/results/. Arguments choose some by name.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh --bench
bash scripts/build-bench.sh
exec node --expose-gc dist/bench/main.js "$@"
