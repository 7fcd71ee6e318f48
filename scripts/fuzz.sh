#!/usr/bin/env bash
# Plays mutated frames to the datapath in the kernel and to a model of it. Options: --packets N, --seed N, --processes 1|2.
# `http N` or `http Ns` instead: so many mutated connections, or for so many seconds, to the readers of HTTP. WEIR_SEED repeats a run.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh
case "${1:-}" in
  http)
    shift
    exec node dist/test/service-plane/http/fuzz/main.js "$@"
    ;;
esac
exec node dist/test/dataplane/fuzz/main.js "$@"
