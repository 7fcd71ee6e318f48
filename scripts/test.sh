#!/usr/bin/env bash
# Runs the whole test suite, and prints `N passed, N failed` as its last line, after one line `failed: ...`
# for each failed test, and one line `skipped: ...` with the reason for each skipped test. If vitest fails and
# no test failed, for example by an error outside of tests, this counts as one more failure. Arguments go to
# vitest, for example the path of a test, or `--mode faults` for other tests (see vitest.config.ts). With
# --setup=test or --setup=trials as the first argument, installs and builds first what is missing.
source "$(dirname "$0")/usage.sh"
set -uo pipefail
cd "$(dirname "$0")/.."
if [[ "${1:-}" = --setup=* ]]; then
  bash scripts/setup.sh "--${1#--setup=}" || exit
  shift
fi
# The certificates of this machine are for the set-up only: the tests trust their own. Each process of Node
# would read the file again, which takes longer than the rest of its start.
unset NODE_EXTRA_CA_CERTS
report=$(mktemp)
errors=$(mktemp)
trap 'rm -f "$report" "$errors"' EXIT
UNHANDLED_ERRORS="$errors" npx --no-install vitest run --reporter=default --reporter=./scripts/unhandled-errors.ts \
  --reporter=json --outputFile.json="$report" "$@"
status=$?
node -e '
  const fs = require("node:fs");
  let report = {};
  try { report = JSON.parse(fs.readFileSync(process.argv[1], "utf8")); } catch {}
  const firstLine = (message) => (message ?? "").split("\n")[0];
  const path = (file) => require("node:path").relative(".", file.name);
  // A run of some tests by their names reports the others as skipped, without a reason.
  for (const file of report.testResults ?? [])
    for (const { status, fullName } of file.assertionResults)
      if (status !== "passed" && status !== "failed" && fullName.includes("(skipped: "))
        console.log(`skipped: ${path(file)}: ${fullName}`);
  const failures = (report.testResults ?? []).flatMap((file) => {
    const tests = file.assertionResults.filter((each) => each.status === "failed");
    if (file.status === "failed" && tests.length === 0) return [`${path(file)}: ${firstLine(file.message)}`];
    return tests.map((each) => `${path(file)}: ${each.fullName}: ${firstLine(each.failureMessages[0])}`);
  });
  const [, , errors, status] = process.argv;
  if (status !== "0" && failures.length === 0)
    failures.push(firstLine(fs.readFileSync(errors, "utf8")) || `vitest ended with status ${status}, see above`);
  for (const failure of failures) console.log(`failed: ${failure}`);
  const skipped = (report.numPendingTests ?? 0) + (report.numTodoTests ?? 0);
  console.log(`${report.numPassedTests ?? 0} passed, ${failures.length} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`);
' "$report" "$errors" "$status"
exit "$status"
