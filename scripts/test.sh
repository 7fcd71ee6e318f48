#!/usr/bin/env bash
# Runs the whole test suite, and prints `N passed, N failed` as its last line. Arguments go to vitest, for
# example the path of a test, or `--config FILE` for another suite.
set -uo pipefail
cd "$(dirname "$0")/.."
report=$(mktemp)
trap 'rm -f "$report"' EXIT
npx --no-install vitest run --reporter=default --reporter=json --outputFile.json="$report" "$@"
status=$?
node -e '
  const fs = require("node:fs");
  let r = {};
  try { r = JSON.parse(fs.readFileSync(process.argv[1], "utf8")); } catch {}
  const skipped = (r.numPendingTests ?? 0) + (r.numTodoTests ?? 0);
  const failed = (r.numFailedTests ?? 0) + (r.testResults ?? []).filter((f) => f.status === "failed" && !f.assertionResults.some((each) => each.status === "failed")).length;
  console.log(`${r.numPassedTests ?? 0} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`);
' "$report"
exit "$status"
