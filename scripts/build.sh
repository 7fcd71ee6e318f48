#!/usr/bin/env bash
# Builds TypeScript to dist/ and the datapath to dist/bpf/. Each part is built only if its sources are newer
# than the last build.
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=dist/.built
if [ ! -e "$stamp" ] || [ -n "$(find src statecharts test bench scripts package.json tsconfig.json -newer "$stamp" -print -quit)" ]; then
  printf 'build: TypeScript\n'
  mkdir -p dist
  touch "$stamp.new"
  npx --no-install tsc -p .
  mv "$stamp.new" "$stamp"
fi
bash scripts/build-bpf.sh
