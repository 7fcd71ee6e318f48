#!/usr/bin/env bash
# Writes the types of the management API for the console to dist/console-types/, from the OpenAPI document of
# the sources, and checks the types of the console.
source "$(dirname "$0")/usage.sh"
set -euo pipefail
cd "$(dirname "$0")/.."
types=dist/console-types
mkdir -p "$types"
node --conditions=weir-source --import tsx scripts/console-openapi.ts "$types/openapi.json"
npx --no-install openapi-typescript "$types/openapi.json" --output "$types/openapi.d.ts" >/dev/null
node node_modules/typescript-7/bin/tsc -p console
