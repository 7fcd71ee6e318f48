import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { temporaryFolder } from '#test/store/temporary-folder.js';

const root = fileURLToPath(new URL('../..', import.meta.url));

type Run = { readonly report: unknown; readonly errors?: string; readonly status: number };

/** Runs the script of `npm test` with another program in the place of vitest. Returns what it prints. */
function runTests({ report, errors = '', status }: Run): string {
  const folder = temporaryFolder();
  const file = `for word; do case $word in --outputFile.json=*) cat >"\${word#*=}" <<'END'\n${JSON.stringify(report)}\nEND\nesac; done`;
  const npx = `#!/bin/sh\n${file}\nprintf '%s' '${errors}' >"$UNHANDLED_ERRORS"\nexit ${status}\n`;
  writeFileSync(join(folder, 'npx'), npx, { mode: 0o755 });
  const env = { ...process.env, PATH: `${folder}:${process.env.PATH}` };
  return spawnSync('bash', [join(root, 'scripts/test.sh')], { encoding: 'utf8', env }).stdout;
}

test('the script of `npm test` prints each failed test, each skipped test with its reason, and the counts at the end', () => {
  const each = (status: string, fullName: string, failureMessages: readonly string[] = []) => ({
    ...{ status, fullName, failureMessages },
  });
  const assertionResults = [
    each('passed', 'a'),
    each('skipped', 'b (skipped: it needs root)'),
    each('skipped', 'c, which -t leaves out'),
    each('failed', 'd', ['Error: no\n  at x']),
  ];
  const testResults = [{ name: join(root, 'test/x.test.ts'), status: 'failed', assertionResults }];
  const stdout = runTests({ report: { numPassedTests: 1, numPendingTests: 2, testResults }, status: 1 });
  expect(stdout).toBe(`skipped: test/x.test.ts: b (skipped: it needs root)
failed: test/x.test.ts: d: Error: no
1 passed, 1 failed, 2 skipped
`);
});

test.each([
  ['the reason of an error outside of tests', 'Error: late\nError: later\n', 'Error: late'],
  ['the exit status if there is no reason', '', 'vitest ended with status 1, see above'],
])(
  'the script of `npm test` counts a failure if vitest fails without a failed test, and prints %s',
  (_, errors, reason) => {
    const report = { numPassedTests: 2, testResults: [] };
    expect(runTests({ report, errors, status: 1 })).toBe(`failed: ${reason}\n2 passed, 1 failed\n`);
  },
);
