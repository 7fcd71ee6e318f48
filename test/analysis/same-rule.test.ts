import { expect, test } from 'vitest';
import { isSameRule, ruleKey } from '#analysis/engine/same-rule.js';
import type { Rule } from '#contracts/policy/policy-model.js';

const RULE: Rule = {
  id: 'rule',
  pointer: '/rules/0',
  action: 'allow',
  mode: 'enforce',
  destinations: [{ address: 0x0a00_0000, length: 8 }],
  hostname: { kind: 'exact', labels: ['other', 'org'], text: 'other.org' },
  protocol: 6,
  sourcePorts: [{ low: 1, high: 2 }],
  destinationPorts: [{ low: 80, high: 80 }],
  icmpTypes: [],
  icmpCodes: [],
  tls: { mode: 'metadata' },
};

test.each<Partial<Rule>>([
  { action: 'deny' },
  { mode: 'audit' },
  { destinations: [] },
  { destinations: [{ address: 0x0a00_0000, length: 9 }] },
  { destinations: [{ address: 0x0b00_0000, length: 8 }] },
  { hostname: undefined },
  { protocol: 'any' },
  { sourcePorts: [] },
  { sourcePorts: [{ low: 1, high: 3 }] },
  { destinationPorts: [{ low: 79, high: 80 }] },
  { icmpTypes: [8] },
  { icmpCodes: [0] },
  { tls: undefined },
  { tls: { mode: 'intercept' } },
])('a rule with %j is another rule', (change) => {
  const changed = { ...RULE, ...change };
  expect([isSameRule(RULE, changed), isSameRule(changed, RULE), ruleKey(RULE) === ruleKey(changed)]).toEqual([
    false,
    false,
    false,
  ]);
});

test('a copy of a rule with another id is the same rule', () => {
  const copy = { ...structuredClone(RULE), id: 'copy' };
  expect([isSameRule(RULE, copy), ruleKey(RULE) === ruleKey(copy)]).toEqual([true, true]);
});
