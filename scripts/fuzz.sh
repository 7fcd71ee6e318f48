#!/usr/bin/env bash
# dataplane (default): plays mutated frames to the datapath in the kernel and to a model of it. Options: --packets N, --seed N, --processes 1|2.
# dns: plays mutated answers and queries to their readers. Options as those of tls.
# tls: plays mutated hellos, server flights and certificates to their readers. Options: --count N, --seconds N, --seed N, --target NAME.
# http: plays mutated connections to the readers of HTTP and to Node's: `http N` of them, or `http Ns` for so long. WEIR_SEED repeats a run.
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
