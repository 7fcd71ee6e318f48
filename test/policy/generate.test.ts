import { describe, expect, test } from 'vitest';
import type { Packet, Policy } from '#contracts/policy/policy-model.js';
import { evaluate } from '#policy/evaluate/evaluate.js';
import { generatePolicy, packetGenerator, shrink } from '#test/policy/generate.js';
import { group, packet, policy, rule } from '#test/policy/sample.js';
import { Random } from '#test/seed.js';

describe('the generator of random policies', () => {
  test('the generator of random policies returns equal policies and packets for equal seeds', () => {
    const make = () => {
      const random = new Random(7);
      const made = generatePolicy(random);
      const next = packetGenerator(random, made);
      return { made, packets: Array.from({ length: 20 }, next) };
    };
    expect(make()).toEqual(make());
  });

  test('the generator of random policies produces every possible combination of verdict, audit bit, and kind of decider (rule, group default, policy default)', () => {
    const seen = new Set<string>();
    for (let seed = 0; seed < 100; seed++) {
      const random = new Random(seed);
      const made = generatePolicy(random);
      const next = packetGenerator(random, made);
      for (let count = 0; count < 100; count++) {
        const { place, verdict, audited } = evaluate(made, next());
        seen.add(`${place.kind} ${verdict}${audited ? ' audited' : ''}`);
      }
    }
    expect([...seen].sort()).toEqual([
      'group_default allow',
      'group_default allow audited',
      'group_default audit audited',
      'group_default deny',
      'policy_default allow',
      'policy_default allow audited',
      'policy_default audit audited',
      'policy_default deny',
      'rule allow',
      'rule allow audited',
      'rule audit audited',
      'rule deny',
      'rule redirect',
      'rule redirect audited',
    ]);
  });
});

describe('`shrink`', () => {
  test('`shrink` removes groups, sources, rules and matchers as long as `fails` stays true without them', () => {
    const needed = rule({ id: 'needed', protocol: 6, ports: ['443'] });
    const bulky = policy([
      group(['10.0.0.0/8'], [rule({ protocol: 17 })], { defaultAction: undefined }),
      group(['10.0.0.0/8', '192.0.2.0/24'], [rule({ protocol: 1 }), { ...needed, tls: {}, mode: 'audit' }, rule()]),
      group(['10.0.0.0/8'], [rule()], { defaultAction: 'deny' }),
    ]);
    const fails = (given: Policy, tried: Packet): boolean => {
      const { place } = evaluate(given, tried);
      return (
        place.kind === 'rule' &&
        given.groups[place.group]?.rules[place.rule]?.id === 'needed' &&
        tried.destinationPort === 443
      );
    };
    const smallest = shrink(bulky, packet(), fails);
    expect(smallest).toEqual({
      policy: policy([group(['10.0.0.0/8'], [rule({ id: 'needed', mode: 'audit' })])]),
      packet: packet({ destination: '0.0.0.0', sourcePort: 0 }),
    });
  });
});
