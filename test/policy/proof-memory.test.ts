import { expect, test } from 'vitest';
import { NOTHING_LISTED } from '#contracts/kubernetes/membership.js';
import type { Family, Policy } from '#contracts/policy/policy-model.js';
import { ProofMemory } from '#policy/proof/proof-memory.js';
import { sampleOf } from '#policy/proof/proof-sample.js';
import { Random, seedOf } from '#test/seed.js';
import { withChangedGroup } from './changed-groups.js';
import { generateMembership, generatePolicy } from './generate.js';
import { group, policy, rule } from './sample.js';

const seed = seedOf(60_711);

test.each<Family>(['ipv4', 'ipv6'])(
  '`ProofMemory` returns for a changed policy the same test packets of %s with and without packets kept from the previous policy',
  (family) => {
    let packets = 0;
    for (let number = 0; number < 60; number++) {
      const random = new Random(seed + number);
      const density = random.pick([0.25, 1, 3]);
      const memory = new ProofMemory(family);
      let changed = generatePolicy(random, { groups: 12, rules: 12, selectors: 0.2, families: ['ipv4', family] });
      let { scope } = random.chance(0.5) ? generateMembership(random, changed) : NOTHING_LISTED;
      memory.decided(changed, scope, density);
      for (let step = 0; step < 12; step++) {
        changed = withChangedGroup(random, changed);
        if (random.chance(0.1))
          changed = { ...changed, default: { ...changed.default, action: random.pick(['allow', 'deny']) } };
        if (random.chance(0.1)) ({ scope } = generateMembership(random, changed));
        const fresh = new ProofMemory(family).decided(changed, scope, density);
        expect({ seed, number, step, kept: memory.decided(changed, scope, density) }).toEqual({
          seed,
          number,
          step,
          kept: fresh,
        });
        packets += fresh.expected.length;
      }
    }
    expect(packets).toBeGreaterThan(family === 'ipv4' ? 50_000 : 40_000);
  },
);

/**
 * Returns a policy of 502 groups: the first group matches `port`, 500 groups have one source and `each`
 * rules, and the last group has all sources.
 */
function large(port: string, each = 10): Policy {
  return policy([
    group(['10.0.0.1'], [rule({ ports: [port] })]),
    ...Array.from({ length: 500 }, (_, number) =>
      group(
        [`10.1.${number >> 8}.${number & 255}`],
        Array.from({ length: each }, (_, own) => rule({ to: [`192.0.${number & 255}.${own}`] })),
      ),
    ),
    group(['0.0.0.0/0'], [rule({ ports: ['22'] })], { defaultAction: 'deny' }),
  ]);
}

test('`sampleOf` (test packets of a policy) returns the same packets with and without kept packets if one group of a policy with 502 groups changes', () => {
  const before = large('80');
  const [, ...others] = before.groups;
  const after = { ...before, groups: [...large('81').groups.slice(0, 1), ...others] };
  const memory = new ProofMemory();
  const first = sampleOf(before, memory);
  const second = sampleOf(after, memory);
  expect(second).toEqual(sampleOf(after));
  const packets = ({ expected }: typeof first) => expected.length;
  expect(packets(second)).toBe(packets(first));
  expect(second.packets).not.toEqual(first.packets);
});

test('`sampleOf` (test packets of a policy) returns the same packets with and without kept packets if a group before a group of 5,000 rules changes', () => {
  const whole = Array.from({ length: 5_000 }, (_, number) =>
    rule({ id: `r${number}`, to: [`192.${number % 7}.${number >> 8}.${number & 255}`], ports: [String(number)] }),
  );
  const behind = group(['0.0.0.0/0'], whole);
  const after = (ports: readonly string[]): Policy =>
    policy([
      group(
        ['10.0.0.1'],
        ports.map((port) => rule({ ports: [port] })),
      ),
      behind,
    ]);
  const memory = new ProofMemory();
  for (const ports of [['80'], ['81'], ['80', '81'], [], ['80']]) {
    const changed = after(ports);
    expect(sampleOf(changed, memory)).toEqual(sampleOf(changed));
  }
});
