#!/usr/bin/env bash
# Runs one fuzzer, which the first argument names:
#   dataplane  (default) sends mutated frames to the datapath in the kernel and to a model of the datapath,
#              and compares the results. Options: --family ipv4|ipv6, --packets N, --seed N,
#              --processes 1|2.
#   dns        parses mutated DNS answers and queries. Options: as for tls.
#   tls        parses mutated TLS hellos, server flights and certificates. Options: --count N, --seconds N,
#              --seed N, --target NAME.
#   http       compares Weir's HTTP parsers with the parser of Node on mutated connections. `http N` tests N
#              connections, and `http Ns` runs for N seconds. WEIR_SEED=SEED repeats an earlier run.
source "$(dirname "$0")/usage.sh"
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
