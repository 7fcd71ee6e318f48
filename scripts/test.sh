#!/usr/bin/env bash
# Runs the whole test suite, and prints `N passed, N failed` as its last line, after one line `failed: ...`
# for each failed test. Arguments go to vitest, for example the path of a test, or `--config FILE` for another
# suite. With --setup=test or --setup=trials as the first argument, installs and builds first what is missing.
source "$(dirname "$0")/usage.sh"
set -uo pipefail
cd "$(dirname "$0")/.."
if [[ "${1:-}" = --setup=* ]]; then
  bash scripts/setup.sh "--${1#--setup=}" || exit
  shift
fi
report=$(mktemp)
trap 'rm -f "$report"' EXIT
npx --no-install vitest run --reporter=default --reporter=json --outputFile.json="$report" "$@"
status=$?
node -e '
  const fs = require("node:fs");
  let report = {};
  try { report = JSON.parse(fs.readFileSync(process.argv[1], "utf8")); } catch {}
  const firstLine = (message) => (message ?? "").split("\n")[0];
  const failures = (report.testResults ?? []).flatMap((file) => {
    const path = require("node:path").relative(".", file.name);
    const tests = file.assertionResults.filter((each) => each.status === "failed");
    if (file.status === "failed" && tests.length === 0) return [`${path}: ${firstLine(file.message)}`];
    return tests.map((each) => `${path}: ${each.fullName}: ${firstLine(each.failureMessages[0])}`);
  });
  for (const failure of failures) console.log(`failed: ${failure}`);
  const skipped = (report.numPendingTests ?? 0) + (report.numTodoTests ?? 0);
  console.log(`${report.numPassedTests ?? 0} passed, ${failures.length} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`);
' "$report"
exit "$status"
