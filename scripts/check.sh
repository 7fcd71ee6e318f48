#!/usr/bin/env bash
# Checks format, types, lint, architecture rules, language and unused exports. Runs all checks even if one
# fails, and then exits with 1.
source "$(dirname "$0")/usage.sh"
set -uo pipefail
cd "$(dirname "$0")/.."
failed=()
step() {
  local name=$1
  shift
  printf '== %s\n' "$name"
  "$@" || failed+=("$name")
}
architecture() {
  local out
  out=$(npx --no-install depcruise --config .dependency-cruiser.cjs src statecharts console test bench scripts 2>&1)
  local status=$?
  printf '%s\n' "$out"
  # If dependency-cruiser does not support the installed version of TypeScript, it reads no modules and finds
  # no problems. Treat this as a failure.
  if printf '%s' "$out" | grep -q ' 0 modules'; then return 1; fi
  return "$status"
}
step format npx --no-install biome ci --error-on-warnings .
step 'format of C' bash scripts/format-c.sh --check
step types node node_modules/typescript-7/bin/tsc -p . --noEmit
step 'types of the console' bash scripts/console-types.sh
step lint npx --no-install eslint --max-warnings 0 .
step architecture architecture
step language npm run --silent language
step 'dead exports' npx --no-install knip
if [ "${#failed[@]}" -gt 0 ]; then
  printf 'check failed: %s\n' "${failed[*]}"
  exit 1
fi
printf 'check: all good\n'
