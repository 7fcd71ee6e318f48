#!/usr/bin/env bash
# Formats TypeScript, JSON and C.
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."
npx --no-install biome format --write .
bash scripts/format-c.sh
