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
  # A node runs bundles: each command, thread and program of the tour with its packages. Node loads a bundle
  # faster than several hundred modules. Native libraries stay outside, and so does pino, which finds its own
  # files.
  # The banner gives CommonJS packages in the bundle a `require` for the modules of Node.
  rm -rf dist/node
  npx --no-install esbuild dist/src/cli/{weir,relay,tour-traffic,tour-web}.js dist/src/main.js $(find dist/src -name '*.worker.js') \
    --bundle --splitting --platform=node --format=esm --target=node20 --log-level=warning --keep-names --sourcemap \
    --external:koffi --external:pino --external:thread-stream \
    --outdir=dist/node --entry-names='[name]' --chunk-names='chunk-[hash]' \
    --banner:js='import { createRequire as createRequireOfBundle } from "node:module"; const require = createRequireOfBundle(import.meta.url);'
  mv "$stamp.new" "$stamp"
fi
bash scripts/build-bpf.sh
