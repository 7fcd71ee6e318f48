import {
  type AddressOf,
  type Family,
  IPPROTO,
  type Packet,
  type Policy,
  type Rule,
} from '#contracts/policy/policy-model.js';
import { generatePolicy, shrink } from '#test/policy/generate.js';
import { Random } from '#test/seed.js';
import { patternsOf } from '../grant-model.js';
import { Comparison, type Learned, type Mismatch, ONE_SET, type Scene } from './comparison.js';
import { FRAME_SOURCES, type FrameSource } from './frame-sources.js';
import { makeSequence, type Step } from './sequence.js';

const SEQUENCES = 40;
const STEPS = 64;

export type Failure = {
  readonly seed: number;
  readonly mismatch: Mismatch;
  readonly scene: Scene;
  readonly steps: readonly unknown[];
};

export type Result = {
  readonly packets: number;
  /**
   * The sum of each counter over all campaigns, by counter name. The values are those of the model, which
   * `fuzz` compares with the counters of the datapath.
   */
  readonly counted: Readonly<Record<string, number>>;
  readonly failure: Failure | undefined;
};

/**
 * Compares the datapath of an IP family with its TypeScript model on random frames, until `packets` frames
 * are compared or a comparison fails. `failure` is the failing case, reduced to few steps and small policies.
 */
export function fuzz<F extends Family>(
  family: F,
  packets: number,
  seed: number,
  report: (packets: number) => void = () => undefined,
): Result {
  const source = FRAME_SOURCES[family];
  const counted: Record<string, number> = {};
  let failure: Failure | undefined;
  // The flow table has one flow set of eight ways (places for a flow). Two usable ways test evictions, and
  // eight test the claim of a free way.
  const [scarce, ample] = [2, ONE_SET].map(
    (capacity) => new Comparison(family, sceneOf(new Random(seed), source).scene, capacity),
  ) as [Comparison<F>, Comparison<F>];
  const played = (): number => scarce.packets + ample.packets;
  try {
    for (let campaign = 0; played() < packets && failure === undefined; campaign++) {
      const comparison = campaign % 2 === 0 ? scarce : ample;
      const own = (seed + campaign * 7919) >>> 0;
      const found = play(comparison, source, new Random(own));
      if (found !== undefined) failure = { seed: own, ...found };
      for (const [name, count] of comparison.counted()) counted[name] = (counted[name] ?? 0) + count;
      report(played());
    }
    return { packets: played(), counted, failure };
  } finally {
    for (const comparison of [scarce, ample]) comparison.close();
  }
}

function policyOf(random: Random, families: readonly Family[]): Policy {
  const size = random.chance(0.25) ? { groups: 20, rules: 8 } : { groups: 4, rules: 4 };
  const policy = generatePolicy(random, { ...size, families });
  if (!random.chance(0.2)) return policy;
  return { ...policy, groups: policy.groups.map((group) => ({ ...group, rules: group.rules.map(inspecting) })) };
}

/** Returns the rule with TLS matchers, if it can have them. */
function inspecting(rule: Rule): Rule {
  const isOfTcp = rule.protocol === IPPROTO.tcp || (rule.protocol === 'any' && rule.icmpTypes.length === 0);
  return isOfTcp && rule.icmpCodes.length === 0 ? { ...rule, tls: {} } : rule;
}

/**
 * Makes two policies, a packet generator, and grants of destination addresses. Some grants have already
 * expired.
 */
function sceneOf<F extends Family>(
  random: Random,
  { policyFamilies, packets }: FrameSource<F>,
): { readonly scene: Scene; readonly packet: () => Packet<AddressOf<F>> } {
  const policies = [policyOf(random, policyFamilies), policyOf(random, policyFamilies)] as const;
  const packet = packets(random, random.pick(policies));
  const patterns = [...new Set(policies.flatMap(patternsOf))];
  const learned: Learned[] = patterns.flatMap((pattern) =>
    random
      .some(0, 12, () => packet().destination)
      .map((address) => ({ pattern, address, forSeconds: random.chance(0.7) ? 3_600 : random.pick([-1, -3_600]) })),
  );
  // In the grant table, a new grant may replace an expired grant of the same address, but the model keeps
  // both grants. The scene therefore has an expired grant only for an address without other grants.
  const isAlone = ({ address }: Learned): boolean => learned.filter((other) => other.address === address).length === 1;
  const kept = learned.filter((one) => one.forSeconds > 0 || isAlone(one));
  return { scene: { policies, learned: kept }, packet };
}

function play<F extends Family>(
  comparison: Comparison<F>,
  source: FrameSource<F>,
  random: Random,
): Omit<Failure, 'seed'> | undefined {
  const { scene, packet } = sceneOf(random, source);
  comparison.load(scene);
  const sequences = Array.from({ length: SEQUENCES }, () => makeSequence(random, source, packet, STEPS));
  const wrong = sequences.find((steps) => comparison.play(steps) !== undefined);
  if (wrong !== undefined) return smallest(comparison, scene, wrong, (steps) => comparison.play(steps));
  if (comparison.compareCounters() === undefined) return undefined;
  const counted = (steps: readonly Step[]): Mismatch | undefined => {
    comparison.load(scene);
    return comparison.play(steps) ?? comparison.compareCounters();
  };
  const miscounted = sequences.find((steps) => counted(steps) !== undefined);
  return miscounted === undefined
    ? { mismatch: { step: -1, what: 'counters of many sequences', kernel: 0, model: 0 }, scene, steps: [] }
    : smallest(comparison, scene, miscounted, counted);
}

function smallest(
  comparison: Pick<Comparison<Family>, 'load' | 'play' | 'compareCounters'>,
  scene: Scene,
  steps: readonly Step[],
  fails: (steps: readonly Step[]) => Mismatch | undefined,
): Omit<Failure, 'seed'> {
  let found = steps;
  for (let at = found.length - 1; at >= 0; at--) {
    const less = found.toSpliced(at, 1);
    if (fails(less) !== undefined) found = less;
  }
  let small = scene;
  const withPolicy = (which: 0 | 1, policy: Policy): Scene => {
    const [first, second] = small.policies;
    return { ...small, policies: which === 0 ? [policy, second] : [first, policy] };
  };
  for (const which of [0, 1] as const) {
    const { policy } = shrink(small.policies[which], NOTHING, (less) => {
      comparison.load(withPolicy(which, less));
      return comparison.play(found) !== undefined || comparison.compareCounters() !== undefined;
    });
    small = withPolicy(which, policy);
  }
  comparison.load(small);
  const mismatch = comparison.play(found) ?? comparison.compareCounters();
  if (mismatch === undefined) throw new Error('the smallest case does not fail');
  return { mismatch, scene: small, steps: found.map(printable) };
}

/** Returns a failure as text, with IPv6 addresses in hexadecimal notation. */
export function textOf(failure: Failure): string {
  return JSON.stringify(failure, (_, value) => (typeof value === 'bigint' ? `0x${value.toString(16)}` : value), 1);
}

/** A placeholder for the packet argument of `shrink`. This campaign shrinks only the policy. */
const NOTHING = { source: 0, destination: 0, protocol: 0, sourcePort: 0, destinationPort: 0, icmpType: 0, icmpCode: 0 };

function printable(step: Step): unknown {
  return step.kind === 'frame' ? { ...step, bytes: Buffer.from(step.bytes).toString('hex') } : step.kind;
}
