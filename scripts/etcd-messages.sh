#!/usr/bin/env bash
# Generates the messages of etcd's gRPC API from src/cluster/etcd/etcd.proto.
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."
npx --no-install buf generate src/cluster/etcd/etcd.proto --template '{
  "version": "v2",
  "plugins": [{ "local": "protoc-gen-es", "out": "src/cluster/etcd/generated", "opt": ["target=ts", "import_extension=js"] }]
}'
