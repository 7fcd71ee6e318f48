#!/usr/bin/env bash
# Runs the quick start, after it installed and built what is missing: a node, a client and a server in
# namespaces of this machine, and a tour. With --cluster: three nodes and etcd.
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh
exec node bin/weir.js start "$@"
