import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { PROBLEM_CODES, WARNING_CODES } from '#contracts/policy/policy-problem.js';
import { CA_ABSENT } from '#contracts/service-plane/no-intercept-ca.js';
import { NO_INTERCEPT_CA } from '#policies/write/write-decision.js';
import { servicePlaneChart } from '#statecharts/service-plane.chart.js';

it('the readiness report and the policy warning name the command `weir ca generate` if there is no intercept CA', () => {
  const command = '`weir ca generate`';
  expect(CA_ABSENT).toContain(command);
  expect(NO_INTERCEPT_CA.message).toContain(command);
  expect({ ...PROBLEM_CODES, ...WARNING_CODES }.no_intercept_ca).toContain(command);
  expect(servicePlaneChart.getStateNodeById('servicePlane.running.serving.without_ca').meta?.detail).toContain(command);
});

it('each text about a missing intercept CA names the command `weir ca generate`', () => {
  const files = ['src', 'statecharts'].flatMap((folder) =>
    readdirSync(folder, { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .map((name) => join(folder, name)),
  );
  const found = files.filter((file) => {
    const code = readFileSync(file, 'utf8').replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, '');
    return /\bno intercept CA\b(?! \(`weir ca generate` makes one\))/.test(code);
  });
  // This file has an error without the command in its text, because the advice of the error names the
  // command.
  expect(found).toEqual(['src/cli/node/ca.command.ts']);
});
