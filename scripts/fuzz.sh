#!/usr/bin/env bash
# dataplane (default): sends mutated frames to the kernel datapath and to a model of it, and compares them.
# Options: --packets N, --seed N, --processes 1|2.
# dns: parses mutated DNS answers and queries. Options: as for tls.
# tls: parses mutated hellos, server flights and certificates. Options: --count N, --seconds N, --seed N,
# --target NAME.
# http: compares our HTTP parsers with that of Node on mutated connections: `http N` connections, or `http Ns`
# seconds. WEIR_SEED repeats a run.
set -euo pipefail
cd "$(dirname "$0")/.."
target=dataplane
case "${1:-}" in
  dataplane) shift ;;
  dns)
    target=dns/wire
    shift
    ;;
  tls | http)
    target="service-plane/$1"
    shift
    ;;
esac
bash scripts/setup.sh
exec node "dist/test/$target/fuzz/main.js" "$@"
