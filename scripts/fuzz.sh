#!/usr/bin/env bash
# Plays mutated frames to the datapath in the kernel and to a model of it. Options: --packets N, --seed N, --processes 1|2.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh
exec node dist/test/dataplane/fuzz/main.js "$@"
