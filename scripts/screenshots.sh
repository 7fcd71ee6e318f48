#!/usr/bin/env bash
# Renews the pictures in docs/images of README.md and docs/console.md, from the console of the tour. Takes
# about five minutes. With --snapshots: renews instead the pictures in test/console/snapshots, which a test
# compares.
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/setup.sh --test
if [ "${1:-}" = --snapshots ]; then
  WEIR_SNAPSHOTS=write npx --no-install vitest run test/console/snapshots.test.ts
else
  npx --no-install vitest run --mode pictures
fi
