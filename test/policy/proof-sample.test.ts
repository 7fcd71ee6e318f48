import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { covers } from '#addresses/ip-address.js';
import { type Family, IPPROTO, noGrants, type Packet, type Policy, type Rule } from '#contracts/policy/policy-model.js';
import { type ProofSample, packetAt } from '#contracts/policy/proof-types.js';
import { rankOf, verdictWord } from '#contracts/policy/verdict-word.js';
import { evaluate } from '#policy/evaluate/evaluate.js';
import { mismatch } from '#policy/evaluate/mismatch.js';
import { ruleNamesOf } from '#policy/model/rules/rule-names.js';
import { mismatchSentence } from '#policy/proof/mismatch-sentence.js';
import { ProofMemory } from '#policy/proof/proof-memory.js';
import { sampleOf } from '#policy/proof/proof-sample.js';
import { Random, seedOf } from '#test/seed.js';
import { generatePolicy, ipv6PacketGenerator, packetGenerator } from './generate.js';
import { group, packet, policy, rule } from './sample.js';

const seed = seedOf(60_601);
const FAMILIES: readonly Family[] = ['ipv4', 'ipv6'];

function packetsOf(sample: ProofSample): Packet[] {
  return Array.from(sample.expected, (_, index) => packetAt(sample, index));
}

/**
 * Returns the equivalence class of a packet as a text of bits: one bit for each group (1 if the group
 * contains the source), and one bit for each rule (1 if the rule matches).
 */
function characteristics({ groups }: Policy, tried: Packet): string {
  return groups
    .flatMap(({ sources, selectors, rules }) => {
      const isStatic = sources.some((prefix) => covers(prefix, tried.source));
      const isDecidedBy = ({ action }: Rule) => isStatic || (selectors.length > 0 && action === 'deny');
      return [isStatic, ...rules.map((one) => isDecidedBy(one) && mismatch(one, tried, noGrants) === undefined)];
    })
    .map(Number)
    .join('');
}

describe('the proof sample of a policy', () => {
  test.each(FAMILIES)(
    'the proof sample (test packets of %s) of a policy contains for each packet the verdict word of the reference evaluator',
    (family) => {
      let packets = 0;
      for (let number = 0; number < 60; number++) {
        const size = number % 10 === 0 ? { groups: 3, rules: 200 } : {};
        const generated = generatePolicy(new Random(seed + number), { ...size, families: ['ipv4', family] });
        const sample = sampleOf(generated, new ProofMemory(family));
        const some = Math.ceil(sample.expected.length / 5_000);
        for (let index = number % some; index < sample.expected.length; index += some, packets++) {
          const { rank, verdict, audited } = evaluate(generated, packetAt(sample, index));
          if (verdictWord(rank, verdict, audited) === sample.expected[index]) continue;
          expect.fail(inspect({ seed, number, packet: packetAt(sample, index) }));
        }
      }
      expect(packets).toBeGreaterThan(50_000);
    },
  );

  test.each(FAMILIES)(
    'a complete proof sample of %s has a packet of each equivalence class (packets that match the same rules) of 3,000 random packets',
    (family) => {
      let complete = 0;
      for (let number = 0; number < 60; number++) {
        const random = new Random(seed + number * 31);
        const generated = generatePolicy(random, { groups: 3, rules: 3, families: ['ipv4', family] });
        const sample = sampleOf(generated, new ProofMemory(family));
        if (!sample.complete) continue;
        complete++;
        const covered = new Set(packetsOf(sample).map((tried) => characteristics(generated, tried)));
        const next: () => Packet =
          family === 'ipv4' ? packetGenerator(random, generated) : ipv6PacketGenerator(random, generated);
        for (let count = 0; count < 3_000; count++) {
          const tried = next();
          if (covered.has(characteristics(generated, tried))) continue;
          expect.fail(inspect({ seed, number, tried, generated }, { depth: null }));
        }
      }
      expect(complete).toBeGreaterThan(50);
    },
  );

  test('the proof sample (test packets) of a policy has six packets of each equivalence class, and more packets just outside the bounds of each rule', () => {
    const web = rule({ protocol: IPPROTO.tcp, to: ['192.0.2.0/24'], ports: ['443'] });
    const sample = sampleOf(policy([group(['10.0.0.0/8'], [web])]));
    // Sources outside the group give 2 classes. Sources of the group give 2 classes for destinations outside
    // the rule. For the destination of the rule, sources of the group give 2 classes for protocols below and
    // above TCP, and 3 classes for TCP.
    expect(sample).toMatchObject({ classes: 2 + 2 + 2 + 3, complete: true });
    expect(sample.expected.length).toBe(9 * 6 + 16);
  });

  test('the proof sample (test packets) of a policy has packets at both ends of the range of each matcher, and just outside both ends', () => {
    const web = rule({ protocol: IPPROTO.tcp, to: ['192.0.2.0/24'], ports: ['443-500'] });
    const sample = sampleOf(policy([group(['10.0.0.0/8'], [web])]));
    const packets = packetsOf(sample);
    const values = (field: keyof Packet<number>) => new Set(packets.map((tried) => tried[field]));
    const { source, destination } = packet({ source: '10.0.0.0', destination: '192.0.2.0' });
    expect([...values('source')]).toEqual(
      expect.arrayContaining([source - 1, source, source + 0xff_ffff, source + 0x100_0000]),
    );
    expect([...values('destination')]).toEqual(
      expect.arrayContaining([destination - 1, destination, destination + 255, destination + 256]),
    );
    expect([...values('destinationPort')]).toEqual(expect.arrayContaining([442, 443, 500, 501]));
  });

  test('the proof sample (test packets) of a policy is equal for equal policies', () => {
    const [one, other] = [0, 0].map(() => sampleOf(generatePolicy(new Random(seed), { groups: 20, rules: 8 })));
    expect(other).toEqual(one);
  });

  test('the proof sample (test packets) of a policy has one packet inside each rule, and is marked incomplete, if the policy has too many classes', () => {
    const rules = Array.from({ length: 5_000 }, (_, index) =>
      rule({ protocol: IPPROTO.udp, to: [`10.${index >> 8}.${index & 255}.0/24`], ports: [String(index)] }),
    );
    const large = policy([group(['192.168.0.0/16'], rules.slice(0, 2_000)), group(['172.16.0.1'], rules.slice(2_000))]);
    const sample = sampleOf(large);
    expect(sample).toMatchObject({ classes: null, complete: false });
    const deciding = new Set(Array.from(sample.expected, (decided) => rankOf(decided)));
    expect(deciding.size).toBe(5_001);
  });

  test('the proof sample (test packets) is sorted by destination for one group of 5,000 rules, and by rule for five groups of 1,000 rules', () => {
    const descending = (count: number) =>
      Array.from({ length: count }, (_, index) =>
        rule({ protocol: IPPROTO.udp, to: [`10.${(count - index) >> 8}.${(count - index) & 255}.1`], ports: ['53'] }),
      );
    const insides = (rules: readonly Rule[], groups: number) => {
      const sample = sampleOf(policy(Array.from({ length: groups }, (_, at) => group([`192.168.0.${at}`], rules))));
      return packetsOf(sample)
        .slice(0, rules.length)
        .map(({ destination }) => Number(destination));
    };
    expect(isSorted(insides(descending(5_000), 1))).toBe(true);
    expect(isSorted(insides(descending(1_000), 5).reverse())).toBe(true);
  });

  test('the proof sample (test packets) has fewer packets than the policy has rules if the reference evaluator needs a long time for each packet', () => {
    const rules = Array.from({ length: 10_000 }, (_, index) =>
      rule({ protocol: IPPROTO.udp, from: [String(index)], ports: ['53'] }),
    );
    const sample = sampleOf(policy([group(['0.0.0.0/0'], rules)]));
    expect(sample).toMatchObject({ classes: null, complete: false });
    expect(sample.expected.length).toBeLessThan(10_000);
    expect(Math.max(...Array.from(sample.expected, (decided) => rankOf(decided)))).toBeGreaterThan(9_000);
  });
});

function isSorted(numbers: readonly number[]): boolean {
  return numbers.every((number, at) => at === 0 || (numbers[at - 1] ?? 0) <= number);
}

test('`mismatchSentence` names the packet, the expected and the found verdict, and the rules or defaults that gave these verdicts', () => {
  const rules = [rule({ id: 'web' }), rule({ id: 'ssh' })];
  const ruleNames = ruleNamesOf(
    policy([group([], rules, { id: 'lan', defaultAction: 'deny' }), group([], [], { id: 'wan' })]),
  );
  const sentence = (expected: number, found: number) =>
    mismatchSentence({ packet: packet(), expected, found }, ruleNames);
  const start = 'TCP from 10.0.0.1:40000 to 192.0.2.1:443: the policy gives';
  expect(sentence(verdictWord(1, 'redirect', true), verdictWord(2, 'deny', false))).toBe(
    `${start} redirect by rule ssh of group lan, and the compiled tables give deny by the default action of group lan`,
  );
  expect(sentence(verdictWord(3, 'audit', true), verdictWord(9, 'allow', false))).toBe(
    `${start} audit by the default policy, and the compiled tables give allow by a rank that the policy does not have (9)`,
  );
  const silent = { ...packet({ protocol: 47 }), sourcePort: 0, destinationPort: 0 };
  expect(mismatchSentence({ packet: silent, expected: verdictWord(0, 'allow', false), found: 0 }, ruleNames)).toBe(
    'protocol 47 from 10.0.0.1 to 192.0.2.1: the policy gives allow by rule web of group lan, and the compiled tables give an invalid verdict',
  );
});
