import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import type { Family, Grants, Group, Packet, Policy } from '#contracts/policy/policy-model.js';
import { noGrants } from '#contracts/policy/policy-model.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import { type CompileOptions, compile } from '#policy/compile/compile.js';
import { classify } from '#policy/evaluate/classify.js';
import { evaluate } from '#policy/evaluate/evaluate.js';
import { wordText } from '#policy/explain/listing.js';
import {
  type GenerateOptions,
  generateGrants,
  generatePolicy,
  ipv6PacketGenerator,
  packetGenerator,
  shrink,
} from '#test/policy/generate.js';
import { grantedNames } from '#test/policy/granted-names.js';
import { Random, seedOf } from '#test/seed.js';

const PACKETS = 1_000;
const BOTH: readonly Family[] = ['ipv4', 'ipv6'];

function wanted(policy: Policy, packet: Packet, grants: Grants): number {
  const { rank, verdict, audited } = evaluate(policy, packet, grants);
  return verdictWord(rank, verdict, audited);
}

function found(policy: Policy, packet: Packet, grants: Grants, compileOptions: CompileOptions): number {
  const program = compile(policy, compileOptions);
  return classify(program, packet, grantedNames(program, packet.destination, grants));
}

function checkPolicy(seed: number, options: GenerateOptions, compileOptions: CompileOptions): void {
  const random = new Random(seed);
  const policy = generatePolicy(random, options);
  const program = compile(policy, compileOptions);
  const grants = random.chance(0.3) ? noGrants : generateGrants(seed);
  const packet: () => Packet =
    compileOptions.ipv6 === true ? ipv6PacketGenerator(random, policy) : packetGenerator(random, policy);
  for (let count = 0; count < PACKETS; count++) {
    const tried = packet();
    const got = classify(program, tried, grantedNames(program, tried.destination, grants));
    if (got === wanted(policy, tried, grants)) continue;
    const fails = (less: Policy, same: Packet) =>
      found(less, same, grants, compileOptions) !== wanted(less, same, grants);
    const smallest = shrink(policy, tried, fails);
    const { policy: less, packet: same } = smallest;
    const report = inspect({ seed, ...smallest }, { depth: null });
    const compiled = wordText(found(less, same, grants, compileOptions));
    expect.fail(`compiled ${compiled}, evaluated ${wordText(wanted(less, same, grants))}: ${report}`);
  }
}

/**
 * Replaces each group with selectors by two groups. The first group has the static sources and all rules. The
 * second group has all sources and only the deny rules, because an unresolved selector may match any source.
 */
function withoutSelectors(policy: Policy): Policy {
  const groups = policy.groups.flatMap((group): Group[] => {
    if (group.selectors.length === 0) return [group];
    const rules = group.rules.filter(({ action }) => action === 'deny');
    const defaultAction = group.defaultAction === 'deny' ? group.defaultAction : undefined;
    const everyone: Group = { ...group, sources: [{ address: 0, length: 0 }], selectors: [], rules, defaultAction };
    return [{ ...group, selectors: [] }, everyone];
  });
  return { ...policy, groups };
}

function decider(policy: Policy, packet: Packet<number>, grants: Grants) {
  const { place, verdict, audited } = evaluate(policy, packet, grants);
  const group = place.kind === 'policy_default' ? undefined : policy.groups[place.group];
  const rule = place.kind === 'rule' ? group?.rules[place.rule]?.pointer : undefined;
  return { kind: place.kind, group: group?.pointer, rule, verdict, audited };
}

describe('equivalence of compiled policy and reference evaluator', () => {
  const seed = seedOf(20_260_101);

  test.each<[string, number, GenerateOptions, CompileOptions?]>([
    ['small policies', 150, { groups: 3, rules: 3 }],
    ['policies of many groups', 100, { groups: 20, rules: 3 }],
    ['policies of long groups', 50, { groups: 3, rules: 40 }],
    ['large policies', 5, { groups: 100, rules: 100 }],
    ['policies whose shared groups are not copied into each source list', 100, { groups: 30, rules: 4 }, { copies: 0 }],
    ['policies without TLS and hostnames', 50, { groups: 6, rules: 8, tls: false, hostnames: false }],
    ['IPv6 packets', 150, { groups: 6, rules: 8, families: ['ipv6'] }, { ipv6: true }],
    ['IPv6 packets and policies of both families', 150, { groups: 6, rules: 8, families: BOTH }, { ipv6: true }],
    ['IPv6 packets and shared groups', 100, { groups: 30, rules: 4, families: BOTH }, { ipv6: true, copies: 0 }],
    ['IPv4 packets and policies of both families', 150, { groups: 6, rules: 8, families: BOTH }],
  ])('the compiled policy and the reference evaluator agree for %s', (name, policies, options, compileOptions = {}) => {
    for (let number = 0; number < policies; number++) checkPolicy(seed + number * 7919, options, compileOptions);
    console.log(`${name}: ${policies} policies × ${PACKETS} packets, seed ${seed}`);
  });

  test('the reference evaluator treats a group with unresolved selectors as two groups: all rules for static sources, deny rules for all sources', () => {
    let unresolved = 0;
    for (let number = 0; number < 200; number++) {
      const random = new Random(seed + number * 104_729);
      const policy = generatePolicy(random);
      unresolved += policy.groups.filter(({ selectors }) => selectors.length > 0).length;
      const grants = generateGrants(seed);
      const packet = packetGenerator(random, policy);
      const resolved = withoutSelectors(policy);
      for (let count = 0; count < 200; count++) {
        const tried = packet();
        const [found, wanted] = [policy, resolved].map((one) => JSON.stringify(decider(one, tried, grants)));
        if (found !== wanted) expect.fail(`${JSON.stringify({ seed, number, tried })}: ${found}, not ${wanted}`);
      }
    }
    expect(unresolved).toBeGreaterThan(50);
  });
});
