import { IPPROTO, type Policy, type Prefix, type Rule } from '#contracts/policy/policy-model.js';
import { layout } from '#dataplane/image/program-image.js';
import { compile } from '#policy/compile/compile.js';
import { rule } from '#test/policy/sample.js';
import { Random } from '#test/seed.js';
import type { Bench, Row } from './bench.js';
import { loadForBench, timeLookups } from './lookups.js';

const SOURCES = { base: 0x0a00_0000, mask: 0x00ff_ffff };
const DESTINATIONS = { base: 0x1400_0000, mask: 0x00ff_ffff };
function tile(space: { base: number; mask: number }, index: number, count: number): Prefix<number> {
  const bits = Math.min(24, Math.ceil(Math.log2(Math.max(1, count))));
  return { address: (space.base + index * 2 ** (24 - bits)) >>> 0, length: 8 + bits };
}

function tcpRule(random: Random, index: number, destination: Prefix<number>): Rule {
  const low = random.below(60_000);
  return rule({
    id: `r${index}`,
    action: random.pick(['allow', 'deny'] as const),
    destinations: [destination],
    protocol: IPPROTO.tcp,
    destinationPorts: [
      random.pick([
        { low: 443, high: 443 },
        { low, high: low + 2_000 },
      ]),
    ],
  });
}

/**
 * Returns a policy of groups with `each` rules. Each group applies to another source prefix of the same
 * length. A single group has rules for different destination prefixes of the same length; several groups have
 * rules for random destinations.
 */
export function policyOf(rules: number, each: number): Policy {
  const random = new Random(rules);
  const groups = Math.ceil(rules / each);
  const anywhere = (): Prefix<number> => {
    const length = random.between(12, 28);
    const address = DESTINATIONS.base + random.below(2 ** (length - 8)) * 2 ** (32 - length);
    return { address, length };
  };
  return {
    groups: Array.from({ length: groups }, (_, group) => ({
      id: `g${group}`,
      pointer: '',
      mode: 'enforce' as const,
      sources: [groups === 1 ? { address: SOURCES.base, length: 8 } : tile(SOURCES, group, groups)],
      selectors: [],
      rules: Array.from({ length: each }, (_, index) =>
        tcpRule(random, index, groups === 1 ? tile(DESTINATIONS, index, each) : anywhere()),
      ),
      defaultAction: undefined,
    })),
    default: { action: 'deny', mode: 'enforce', from: 'default_policy' },
  };
}

type Figures = {
  readonly nanoseconds: number;
  readonly lines: number;
  readonly fillMs: number;
  readonly flipMs: number;
};

function measure(policy: Policy): Figures {
  const loaded = loadForBench(1);
  try {
    const program = compile(policy);
    loaded.slots.fill(layout(compile({ ...policy, groups: [] })), 1);
    loaded.slots.flip();
    const started = performance.now();
    const image = layout(program);
    loaded.slots.fill(image, 2);
    const filled = performance.now();
    loaded.slots.flip();
    const flipMs = performance.now() - filled;

    const nanoseconds = timeLookups(loaded, { sources: SOURCES, destinations: DESTINATIONS });
    return { nanoseconds, lines: image.lines, fillMs: filled - started, flipMs };
  } finally {
    loaded.close();
  }
}

async function run(): Promise<readonly Row[]> {
  const rows: Row[] = [];
  for (const [shape, each] of [
    ['groups of ten', (rules: number) => Math.min(10, rules)],
    ['one group', (rules: number) => rules],
  ] as const) {
    let smallest = 0;
    for (const rules of [10, 1_000, 10_000, 100_000]) {
      const label = `${rules.toLocaleString('en')} rules, ${shape}`;
      const figures = measure(policyOf(rules, each(rules)));
      if (rules === 10) smallest = figures.nanoseconds;
      rows.push({
        what: `${label}: a lookup, cold`,
        value: figures.nanoseconds,
        unit: 'ns',
        ...(rules === 10_000 && { atMost: 400 }),
      });
      if (rules !== 100_000) continue;
      rows.push(
        { what: `${shape}: 100,000 rules relative to 10`, value: figures.nanoseconds / smallest, unit: '×', atMost: 3 },
        { what: `${label}: image`, value: (figures.lines * 64) / 2 ** 20, unit: 'MiB' },
        { what: `${label}: layout, grace period and fill`, value: figures.fillMs, unit: 'ms' },
        { what: `${label}: flip`, value: figures.flipMs, unit: 'ms' },
      );
    }
  }
  return rows;
}

/**
 * Measures how long the datapath takes to find the rule for a packet without a flow, by the number of rules,
 * and how long it takes to stage and to flip a program.
 */
export const classifierBench: Bench = { name: 'classifier', run };
