#!/usr/bin/env bash
# Runs a cluster of three nodes on three members of etcd under seeded faults, and checks its promises.
# Options: --seeds N (default 20), --first SEED (default 1), --seconds N for each seed (default 60).
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh --test
exec node dist/test/chaos/main.js "$@"
