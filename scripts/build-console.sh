#!/usr/bin/env bash
# Builds the console to dist/console/, if its sources are newer than the last build. A node serves the
# compressed files.
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."

stamp=dist/.console
[ -n "$(find console package-lock.json -newer "$stamp" -print -quit 2>/dev/null || echo absent)" ] || exit 0
printf 'build: console\n'
mkdir -p dist
touch "$stamp.new"
npx --no-install vite build --config console/vite.config.ts --logLevel error
# Without name and time, so that each build has the same bytes.
find dist/console -type f ! -name '*.gz' -exec gzip -9nk {} +
mv "$stamp.new" "$stamp"
