import { expect, test } from 'vitest';
import { IPV4 } from '#analysis/engine/address-space.js';
import { shapeOf, Window } from '#analysis/engine/rule-shape.js';
import type { Rule } from '#contracts/policy/policy-model.js';
import { Random } from '#test/seed.js';
import { randomRule } from '../../bench/analysis/policies.js';

const RULES = 1_000;

test('a search in a long list with an index of destinations finds the rules that a search without it finds', () => {
  const random = new Random(21);
  const rules = Array.from({ length: RULES }, (_, at): Rule => {
    const rule = randomRule(`r${at}`, 'allow', random, true);
    return random.chance(0.05) ? { ...rule, destinations: [{ address: 0, length: 0 }] } : rule;
  });
  let found = 0;
  for (let count = 0; count < 300; count++) {
    const shapes = Array.from({ length: random.between(1, 3) }, () => shapeOf(random.pick(rules), IPV4));
    const window = new Window(shapes, (rule) => shapeOf(rule, IPV4), IPV4);
    // A list of one rule has no index.
    const expected = rules.flatMap((rule, at) => (window.rulesInside([rule]).length > 0 ? [at] : []));
    expect(window.rulesInside(rules)).toEqual(expected);
    expect(window.rulesInside(rules, (at) => at % 2 === 0)).toEqual(expected.filter((at) => at % 2 === 0));
    found += expected.length;
  }
  expect(found).toBeGreaterThan(RULES);
});
