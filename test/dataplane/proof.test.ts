import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { containsPrefix, mask, ofFamily } from '#addresses/ip-address.js';
import { LINE_WORDS } from '#contracts/datapath/datapath-numbers.js';
import { NOTHING_LISTED } from '#contracts/kubernetes/membership.js';
import { IPPROTO, type Packet, type Policy, type Prefix, type Rule } from '#contracts/policy/policy-model.js';
import { OWNER_CELL, PACKET_CELLS, type ProofMismatch, type ProofSample } from '#contracts/policy/proof-types.js';
import { verdictWord } from '#contracts/policy/verdict-word.js';
import { HEADER, type Image, layout } from '#dataplane/image/program-image.js';
import { compile } from '#policy/compile/compile.js';
import { evaluate } from '#policy/evaluate/evaluate.js';
import { sampleOf } from '#policy/proof/proof-sample.js';
import { generateMembership, generatePolicy, packetGenerator } from '#test/policy/generate.js';
import { address, group, policy, rule, selector } from '#test/policy/sample.js';
import { Random, seedOf } from '#test/seed.js';
import { type Loaded, loadForTest } from './loaded.js';

const seed = seedOf(4_711);
const EDGE_PACKETS = 20_000;

let kernel: Loaded;
beforeAll(() => {
  kernel = loadForTest({ slotLines: 65_536 });
});
afterAll(() => kernel.close());

function staged(image: Image, sample: ProofSample): ProofMismatch | null {
  kernel.slots.fill(image, 1);
  return kernel.prover.mismatch(sample, kernel.slots.idleSlot);
}

/**
 * Returns random packets at the edges of the rules, with the verdict words of the reference evaluator.
 * `numbers` are the old and the new value of the word that the test changed in the image: one field of a
 * packet may have a value near one of these numbers.
 */
function edgesOf(judged: Policy, random: Random, numbers: readonly number[], count: number): ProofSample {
  const next = packetGenerator(random, judged);
  const near = numbers.flatMap((number) => [number - 1, number, number + 1]).filter((number) => number >= 0);
  const packets = new Uint32Array(count * PACKET_CELLS.ipv4);
  const expected = new Uint32Array(count);
  for (let index = 0; index < count; index++) {
    const tried: { -readonly [K in keyof Packet<number>]: Packet<number>[K] } = next();
    if (near.length > 0) {
      const number = random.pick(near);
      const place = random.below(5);
      const isIcmp = tried.protocol === IPPROTO.icmp;
      if (place === 0) tried.source = number >>> 0;
      else if (place === 1) tried.destination = number >>> 0;
      else if (place === 2 && tried.sourcePort > 0) tried.sourcePort = number & 0xffff;
      else if (place === 3 && tried.destinationPort > 0) tried.destinationPort = number & 0xffff;
      else if (isIcmp) [tried.icmpType, tried.icmpCode] = [(number >>> 8) & 255, number & 255];
    }
    const { rank, verdict, audited } = evaluate(judged, tried);
    expected[index] = verdictWord(rank, verdict, audited);
    packets.set(
      [
        tried.source,
        tried.destination,
        tried.sourcePort * 0x1_0000 + tried.destinationPort,
        tried.protocol * 0x1_0000 + tried.icmpType * 256 + tried.icmpCode,
      ],
      index * PACKET_CELLS.ipv4,
    );
  }
  return { family: 'ipv4', packets, expected, classes: null, complete: false };
}

describe('the proof (kernel test run) of a compiled policy', () => {
  test('the proof (kernel test run) of a compiled policy with Kubernetes members succeeds, whatever members the kernel has', () => {
    let owned = 0;
    for (let number = 0; number < 60; number++) {
      const random = new Random(seed + number);
      const size = number % 10 === 0 ? { groups: 4, rules: 400 } : { groups: 8, rules: 5 };
      const judged = generatePolicy(random, { ...size, selectors: 0.6 });
      const membership = generateMembership(random, judged);
      const sample = sampleOf(judged, undefined, membership);
      for (let at = OWNER_CELL.ipv4; at < sample.packets.length; at += PACKET_CELLS.ipv4)
        owned += sample.packets[at] ? 1 : 0;
      expect({ number, mismatch: staged(layout(compile(judged, { membership })), sample) }).toEqual({
        number,
        mismatch: null,
      });
    }
    expect(owned).toBeGreaterThan(10_000);
  });

  test('the proof (kernel test run) of a compiled policy fails if the rule lists of two sets of source groups are exchanged', () => {
    const pods = (app: string, port: string) =>
      group([], [rule({ protocol: IPPROTO.tcp, ports: [port] })], { id: app, selectors: [selector(app)] });
    const judged = policy([pods('web', '443'), pods('db', '5432')]);
    const keys = judged.groups.map(({ selectors: [one] }) => one?.key ?? '');
    const membership = {
      scope: { resolved: new Set(keys), podNetworks: [], networks: new Map() },
      list: {
        added: keys.map((key, at) => ({ number: at + 1, keys: [key] })),
        addresses: [address('10.0.0.1'), address('10.0.0.2')],
        sets: Uint32Array.of(1, 2),
        dropped: [],
      },
    };
    const program = compile(judged, { membership });
    const sample = sampleOf(judged, undefined, membership);
    expect(staged(layout(program), sample)).toBeNull();
    const values = program.members?.trees.values;
    if (values?.length !== 4) throw new Error('the program has two sets');
    values.set([values[2] ?? 0, values[1] ?? 0], 1);
    expect(staged(layout(program), sample)).toMatchObject({ packet: { source: address('10.0.0.1') } });
  });

  test('the proof (kernel test run) of a compiled policy fails if the policy finds no rules for an address with an owner, even if the live member has rules', () => {
    const key = selector('web').key;
    const judged = policy([group(['10.0.0.0/8'], [rule()]), group([], [rule()], { selectors: [selector('web')] })]);
    const membership = {
      scope: { resolved: new Set([key]), podNetworks: [], networks: new Map() },
      list: {
        added: [{ number: 1, keys: [] }],
        addresses: [address('10.0.0.1')],
        sets: Uint32Array.of(1),
        dropped: [],
      },
    };
    kernel.members.replace(NOTHING_LISTED.list);
    const image = layout(compile(judged, { membership }));
    const sample = sampleOf(judged, undefined, membership);
    const ofEmptySet = sample.packets.findIndex((cell, at) => at % PACKET_CELLS.ipv4 === OWNER_CELL.ipv4 && cell > 1);
    const from = ofEmptySet - OWNER_CELL.ipv4;
    const one: ProofSample = {
      ...sample,
      packets: sample.packets.slice(from, from + PACKET_CELLS.ipv4),
      expected: sample.expected.slice(from / PACKET_CELLS.ipv4, from / PACKET_CELLS.ipv4 + 1),
    };
    expect([staged(image, one), one.expected.length]).toEqual([null, 1]);
    // Remove the tree of static sources from the image: the search for an owner then finds nothing.
    const words = Uint32Array.from(image.words);
    words[HEADER.bases] = 0;
    expect(staged({ ...image, words }, one)).toMatchObject({ found: 0 });
  });

  test('the proof (kernel test run) of a compiled policy succeeds if the policy was compiled correctly', () => {
    let packets = 0;
    for (let number = 0; number < 50; number++) {
      const judged = generatePolicy(new Random(seed + number), number % 5 === 0 ? { groups: 20, rules: 8 } : {});
      const sample = sampleOf(judged);
      expect(staged(layout(compile(judged)), sample)).toBeNull();
      packets += sample.expected.length;
    }
    console.log(`proof: ${packets} packets of 50 policies hold, seed ${seed}`);
  });

  test('the proof (kernel test run) of a compiled policy succeeds for a policy that fills its program slot to the last cache line', () => {
    for (let number = 0; number < 12; number++) {
      const random = new Random(seed + number * 31);
      const judged = generatePolicy(random, number % 3 === 0 ? { groups: 20, rules: 8 } : {});
      const image = layout(compile(judged));
      const full = loadForTest({ slotLines: image.lines });
      try {
        const found = [0, 1].map(() => {
          full.switchSlot();
          full.slots.fill(image, 1);
          return full.prover.mismatch(edgesOf(judged, random, [], EDGE_PACKETS), full.slots.idleSlot);
        });
        expect({ number, found }).toEqual({ number, found: [null, null] });
        full.slots.fill(image, 1);
        expect(() => full.slots.fill({ ...image, lines: image.lines + 1 }, 1)).toThrow(/program/);
      } finally {
        full.close();
      }
    }
  });

  test('the proof (kernel test run) of a compiled policy classifies packets by this policy, not by the policy in force', () => {
    const [first, second] = (['allow', 'deny'] as const).map((action) => policy([], { action }));
    if (first === undefined || second === undefined) throw new Error('no policies');
    kernel.activate(compile(first));
    expect(staged(layout(compile(second)), sampleOf(second))).toBeNull();
    expect(staged(layout(compile(second)), sampleOf(first))).toEqual({
      packet: expect.objectContaining({ source: 0, destination: 0 }),
      expected: verdictWord(0, 'allow', false),
      found: verdictWord(0, 'deny', false),
    });
  });

  test('the proof (kernel test run) of a compiled policy fails for more than 90 % of the damaged words that change a verdict', () => {
    const counts = { damaged: 0, changing: 0, refused: 0 };
    const complete = { changing: 0, refused: 0 };
    for (let number = 0; number < 28; number++) {
      const random = new Random(seed + number * 101);
      const judged = generatePolicy(random, number % 4 === 0 ? { groups: 20, rules: 8 } : { hostnames: false });
      const image = layout(compile(judged));
      const sample = sampleOf(judged);
      const edges = edgesOf(judged, random, [], EDGE_PACKETS);
      expect(staged(image, edges)).toBeNull();
      for (let tries = 0; tries < 40; tries++, counts.damaged++) {
        const at = random.between(LINE_WORDS, image.words.length - 1);
        const old = image.words[at] ?? 0;
        const now = random.pick([
          old ^ (1 << random.below(32)),
          old + 1,
          old - 1,
          image.words[random.below(image.words.length)] ?? 0,
          random.word(),
        ]);
        const damaged = { ...image, words: image.words.with(at, now >>> 0) };
        const refused = staged(damaged, sample) !== null;
        const changes =
          refused ||
          staged(damaged, edges) !== null ||
          staged(damaged, edgesOf(judged, random, [old, now >>> 0], 2_000)) !== null;
        for (const counted of sample.complete ? [counts, complete] : [counts]) {
          counted.changing += changes ? 1 : 0;
          counted.refused += refused ? 1 : 0;
        }
      }
    }
    console.log('proof: damaged words', counts, 'where the sample is complete', complete);
    expect(complete.changing).toBeGreaterThan(200);
    expect(counts.refused / counts.changing).toBeGreaterThan(0.9);
    expect(complete.refused / complete.changing).toBeGreaterThan(0.98);
  });

  test.each(Object.entries(mutations()))(
    'the proof (kernel test run) of a compiled policy fails if the compiled policy differs from the written policy: %s',
    (_, mutate) => {
      let changing = 0;
      for (let number = 0; number < 40; number++) {
        const { judged, sample, edges } = mutatedPolicy(number);
        const random = new Random(seed + number * 7 + 1);
        const groupIndex = judged.groups.findIndex(({ rules, sources }) => rules.length > 1 && sources.length > 0);
        const changed = judged.groups[groupIndex];
        if (changed === undefined) continue;
        const mutant = {
          ...judged,
          groups: judged.groups.with(groupIndex, mutate(changed, random)),
        };
        const image = layout(compile(mutant));
        if (staged(image, sample) !== null) changing++;
        else if (staged(image, edges()) !== null) expect.fail(JSON.stringify({ seed, number, judged, mutant }));
      }
      expect(changing).toBeGreaterThan(5);
    },
  );

  test('the proof (kernel test run) of a compiled policy fails if one of 20,000 rules is compiled to another action', () => {
    const rules = Array.from({ length: 20_000 }, (_, index) =>
      rule({ protocol: IPPROTO.udp, to: [`10.${index >> 8}.${index & 255}.0/28`], ports: [String(index)] }),
    );
    const judged = policy([group(['192.168.0.0/16'], rules)]);
    const sample = sampleOf(judged);
    expect(staged(layout(compile(judged)), sample)).toBeNull();
    for (const index of [0, 9_999, 19_999]) {
      const wrong = { ...(rules[index] as Rule), action: 'deny' as const };
      const mutant = policy([group(['192.168.0.0/16'], rules.with(index, wrong))]);
      expect(staged(layout(compile(mutant)), sample)).toMatchObject({
        packet: { destinationPort: index },
        expected: verdictWord(index, 'allow', false),
        found: verdictWord(index, 'deny', false),
      });
    }
  });
});

type MutatedPolicy = {
  readonly judged: Policy;
  readonly sample: ProofSample;
  /** Returns packets at the edges of the rules. */
  readonly edges: () => ProofSample;
};

const mutatedPolicies = new Map<number, MutatedPolicy>();

/** Returns the random policy with this number, into which each test of a mutation puts its mistake. */
function mutatedPolicy(number: number): MutatedPolicy {
  const known = mutatedPolicies.get(number);
  if (known !== undefined) return known;
  const random = new Random(seed + number * 7);
  const judged = generatePolicy(random, { groups: 4, rules: 8, hostnames: false });
  let edges: ProofSample | undefined;
  const made: MutatedPolicy = {
    judged,
    sample: sampleOf(judged),
    edges: () => {
      edges ??= edgesOf(judged, random, [], EDGE_PACKETS);
      return edges;
    },
  };
  mutatedPolicies.set(number, made);
  return made;
}

type Mutation = (changed: Policy['groups'][number], random: Random) => Policy['groups'][number];

/** Returns mistakes that the policy compiler could make, by name. Each function puts one into a group. */
function mutations(): Record<string, Mutation> {
  const ofRule =
    (change: (rule: Rule) => Rule): Mutation =>
    (changed, random) => {
      const wrong = changed.rules.map(change);
      const different = [...wrong.keys()].filter(
        (index) => JSON.stringify(wrong[index]) !== JSON.stringify(changed.rules[index]),
      );
      if (different.length === 0) return changed;
      const index = random.pick(different);
      return { ...changed, rules: changed.rules.with(index, wrong[index] as Rule) };
    };
  return {
    'a rule has the other action': ofRule((one) => ({ ...one, action: one.action === 'allow' ? 'deny' : 'allow' })),
    'a rule has the other mode': ofRule((one) => ({ ...one, mode: one.mode === 'audit' ? 'enforce' : 'audit' })),
    'the port range of a rule ends one port late': ofRule((one) => ({
      ...one,
      destinationPorts: one.destinationPorts.map(({ low, high }) => ({ low, high: Math.min(0xffff, high + 1) })),
    })),
    'the source port range of a rule begins one port early': ofRule((one) => ({
      ...one,
      sourcePorts: one.sourcePorts.map(({ low, high }) => ({ low: Math.max(0, low - 1), high })),
    })),
    'a rule covers twice as many destinations': ofRule((one) => ({
      ...one,
      destinations: ofFamily(one.destinations, 'ipv4').map(wider),
    })),
    'a group has twice as many sources': (changed) => ({
      ...changed,
      sources: ofFamily(changed.sources, 'ipv4').map(wider),
    }),
    'two rules are in the wrong order': (changed) => {
      const [first, second, ...others] = changed.rules;
      return { ...changed, rules: [second as Rule, first as Rule, ...others] };
    },
  };
}

function wider({ address, length }: Prefix<number>): Prefix<number> {
  if (length === 0) return { address, length };
  const found = { address: mask(address, length - 1), length: length - 1 };
  return length === 1
    ? { address: 0, length: 0 }
    : containsPrefix(found, { address, length })
      ? found
      : { address, length };
}
