#!/usr/bin/env bash
# Builds TypeScript to dist/, the console to dist/console/ and the datapath to dist/bpf/. Each part is built
# only if its sources are newer than the last build.
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=dist/.built
if [ ! -e "$stamp" ] || [ -n "$(find src statecharts test bench scripts package.json package-lock.json tsconfig.json -newer "$stamp" -print -quit)" ]; then
  printf 'build: TypeScript\n'
  mkdir -p dist
  touch "$stamp.new"
  # TypeScript 7 takes a third of the time of TypeScript 5, which only typescript-eslint and scripts need.
  node node_modules/typescript-7/bin/tsc -p .
  # A node runs bundles: the command, each thread and each program of the tour with its packages. Node loads a
  # bundle faster than several hundred modules. Native libraries stay outside, and so does pino, which finds
  # its own files.
  bundle=(npx --no-install esbuild --bundle --platform=node --target=node20 --log-level=warning --keep-names
    --sourcemap --legal-comments=external --external:koffi --external:pino --external:thread-stream --outdir=dist/node)
  rm -rf dist/node
  # The banner gives CommonJS packages in the bundle a `require` for the modules of Node.
  "${bundle[@]}" dist/src/cli/tour/{relay,tour-traffic,tour-web}.js --format=esm --entry-names='[name]' --metafile=dist/programs.meta.json \
    --banner:js='import { createRequire as createRequireOfBundle } from "node:module"; const require = createRequireOfBundle(import.meta.url);'
  # Node 20 has a code cache only for CommonJS. V8 compares only the length of the source with the cache, so
  # the caches must never be older than the bundles: they are removed before, and written last.
  "${bundle[@]}" dist/src/cli/weir.js $(find src -name '*.worker.ts' | sed 's,\(.*\)ts$,dist/\1js,') --format=cjs \
    --entry-names='[name].bundle' --metafile=dist/bundles.meta.json \
    --define:import.meta.url=importMetaUrl --minify-whitespace --minify-syntax --line-limit=160 \
    --banner:js='(function (exports, require, module, importMetaUrl) {' --footer:js='})'
  for file in dist/node/*.bundle.js; do
    node bin/code-cache.cjs "$PWD/$file"
    printf "module.exports = require('../../bin/bundle.cjs').load(\`\${__dirname}/%s\`);\n" "$(basename "$file")" >"${file%.bundle.js}.cjs"
  done
  mv "$stamp.new" "$stamp"
fi
bash scripts/build-console.sh
bash scripts/build-bpf.sh
