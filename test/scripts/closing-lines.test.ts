import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { temporaryFolder } from '#test/store/temporary-folder.js';

const root = fileURLToPath(new URL('../..', import.meta.url));

test('the script of `npm test` prints each failed test, each skipped test with its reason, and the counts at the end', () => {
  const folder = temporaryFolder();
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
  const report = JSON.stringify({ numPassedTests: 1, numPendingTests: 2, testResults });
  const npx = `#!/bin/sh\nfor word; do case $word in --outputFile.json=*) cat >"\${word#*=}" <<'END'\n${report}\nEND\nesac; done\n`;
  writeFileSync(join(folder, 'npx'), npx, { mode: 0o755 });
  const env = { ...process.env, PATH: `${folder}:${process.env.PATH}` };
  const { stdout } = spawnSync('bash', [join(root, 'scripts/test.sh')], { encoding: 'utf8', env });
  expect(stdout).toBe(`skipped: test/x.test.ts: b (skipped: it needs root)
failed: test/x.test.ts: d: Error: no
1 passed, 1 failed, 2 skipped
`);
});
