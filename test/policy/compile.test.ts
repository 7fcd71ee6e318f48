import { describe, expect, test } from 'vitest';
import type { IntervalPool, Intervals } from '#contracts/policy/interval-map.js';
import type { Group, Policy, Prefix, Rule } from '#contracts/policy/policy-model.js';
import { MAX_RULE_BLOCKS, type Program } from '#contracts/policy/program.js';
import { NO_MATCH, rankOf, verdictWord } from '#contracts/policy/verdict-word.js';
import { compile } from '#policy/compile/compile.js';
import { CompileMemory } from '#policy/compile/compile-memory.js';
import { classify } from '#policy/evaluate/classify.js';
import { evaluate } from '#policy/evaluate/evaluate.js';
import { listing } from '#policy/explain/listing.js';
import { CompileTooLarge } from '#policy/model/budget.js';
import { outcomeAt, rankOwners } from '#policy/model/rules/rank.js';
import { expectEqual } from '#test/expect-equal.js';
import { generatePolicy, packetGenerator } from '#test/policy/generate.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { Random } from '#test/seed.js';

function host(number: number): Prefix<number> {
  return { address: 0x0a00_0000 + number, length: 32 };
}

function some(count: number, make: (number: number) => Rule): Rule[] {
  return Array.from({ length: count }, (_, number) => make(number));
}

function entries(program: Program): number {
  const { sources, destinations, portMaps: leaves, sourcePortMaps: slices } = program;
  return sources.starts.length + destinations.starts.length + leaves.starts.length + slices.starts.length;
}

function checkSame(given: Policy, program: Program, packets: number): void {
  const next = packetGenerator(new Random(1), given);
  for (let count = 0; count < packets; count++) {
    const tried = next();
    const { rank, verdict, audited } = evaluate(given, tried);
    expectEqual(classify(program, tried), verdictWord(rank, verdict, audited));
  }
}

function tooLarge(compiling: () => Program): CompileTooLarge {
  try {
    compiling();
  } catch (error) {
    if (error instanceof CompileTooLarge) return error;
    throw error;
  }
  throw new Error('it compiled');
}

/**
 * Returns a policy of `groups` groups with one source and one rule each, and a last group of `rules` rules
 * that applies to all sources.
 */
function catchAll(groups: number, rules: number): Policy {
  const own = Array.from(
    { length: groups },
    (_, number): Group => ({
      ...group([], [rule({ protocol: 6, ports: [`${number}`] })]),
      sources: [host(number)],
    }),
  );
  const shared = some(rules, (number) => rule({ destinations: [host(number * 3)], protocol: 17, ports: ['53'] }));
  return policy([...own, group(['0.0.0.0/0'], shared)]);
}

describe('`compile`', () => {
  test('`compile` returns compiled policies with equal bytes for equal policies', () => {
    for (let seed = 0; seed < 50; seed++) {
      const given = generatePolicy(new Random(seed), { groups: 8, rules: 12, families: ['ipv4', 'ipv6'] });
      expect(compile(structuredClone(given), { ipv6: true })).toEqual(compile(given, { ipv6: true }));
    }
  });

  test('`compile` returns the same compiled policy with and without a `CompileMemory` of earlier compilations', () => {
    for (const copies of [undefined, 0]) {
      const random = new Random(99);
      const memory = new CompileMemory();
      const shape = { groups: 12, rules: 8, families: ['ipv4', 'ipv6'] } as const;
      let given = generatePolicy(random, shape);
      for (let step = 0; step < 150; step++) {
        const other = generatePolicy(random, shape);
        const at = random.below(given.groups.length + 1);
        const fresh = other.groups.slice(0, random.below(2));
        given = { ...given, groups: given.groups.toSpliced(at, random.below(2), ...fresh) };
        const options = { ipv6: step % 10 > 0, ...(copies === undefined ? {} : { copies }) };
        expect(compile(given, { ...options, memory })).toEqual(compile(given, options));
      }
    }
  });

  test('`compile` throws CompileTooLarge with the table name `steps` above the step limit, with and without a `CompileMemory` of earlier compilations', () => {
    const given = catchAll(200, 200);
    const limits = { steps: 20_000 };
    const memory = new CompileMemory();
    compile(given, { memory });
    expect(tooLarge(() => compile(given, { limits })).table).toBe('steps');
    expect(tooLarge(() => compile(given, { limits, memory })).table).toBe('steps');
  });

  test('`compile` gives each verdict word the verdict and audit bit of the rule or default whose rank (place in the order) is in the word', () => {
    for (let seed = 0; seed < 60; seed++) {
      const given = generatePolicy(new Random(seed), { groups: 8, rules: 12 });
      const { portMaps: leaves, sourcePortMaps: slices, lists } = compile(given);
      const found = rankOwners(given);
      const words = [...leaves.values, ...slices.values, ...lists.defaults].filter((value) => value < NO_MATCH);
      for (const value of words) {
        const { verdict, audited } = outcomeAt(given, found[rankOf(value)] ?? { kind: 'policy_default' });
        expectEqual(value, verdictWord(rankOf(value), verdict, audited));
      }
    }
  });

  test('the tables of IPv4 are the same with and without prefixes and tables of IPv6', () => {
    for (let seed = 0; seed < 40; seed++) {
      const given = generatePolicy(new Random(seed), { groups: 8, rules: 8, hostnames: false });
      const { ipv6, ...alone } = compile(given);
      expect(ipv6).toBeNull();
      expect(compile(given, { ipv6: true })).toEqual({ ...alone, ipv6: expect.anything() });
    }
  });

  test('`compile` stores the 2,000 rules of a group once, in one rule block (range of rules) that the rule lists of two source ranges share', () => {
    const rules = some(2_000, (number) => rule({ destinations: [host(number)], protocol: 17 }));
    const program = compile(
      policy([group(['10.1.0.0/16'], [rule({ protocol: 6, ports: ['80'] })]), group(['10.0.0.0/8'], rules)]),
    );
    expect(Array.from(program.lists.offsets)).toEqual([0, 0, 1, 3]);
    expect(program.ruleBlocks.destinations.length).toBe(2);
  });

  test('`compile` writes maps of address and port intervals that start at 0, ascend strictly, and have different values in adjacent intervals', () => {
    for (let seed = 0; seed < 100; seed++) {
      const program = compile(generatePolicy(new Random(seed), { groups: 8, rules: 12 }));
      checkMap(program.sources);
      for (const pool of [program.destinations, program.portMaps, program.sourcePortMaps]) checkPool(pool);
    }
  });

  test('`compile` gives the rule list of each source at most MAX_RULE_BLOCKS rule blocks (ranges of rules), sorted by the ranks of their rules', () => {
    for (let seed = 0; seed < 100; seed++) {
      const given = generatePolicy(new Random(seed), { groups: 30, rules: 4, hostnames: false });
      checkSegments(compile(given, { copies: 0 }));
    }
  });

  test('`compile` stores only port maps and source-port maps (from ports to verdicts) that another part of the compiled policy refers to', () => {
    for (let seed = 0; seed < 50; seed++) {
      const {
        ruleBlocks: segments,
        destinations,
        portMaps: leaves,
        sourcePortMaps: slices,
        namePortMaps: nameLeaves,
      } = compile(generatePolicy(new Random(seed)));
      const used = new Set([...destinations.values, ...segments.wildcards, ...segments.named, ...nameLeaves.portMaps]);
      for (let leaf = 0; leaf + 1 < leaves.offsets.length; leaf++) expect(used).toContain(leaf);
      const usedSlices = new Set(
        [...leaves.values].filter((value) => value >= 2 ** 31).map((value) => value - 2 ** 31),
      );
      expect(usedSlices.size).toBe(slices.offsets.length - 1);
    }
  });
});

describe('`compile` of a group that many sources share', () => {
  test('`compile` stores 2,000 rules that many sources share once, not once for each of 2,000 sources', () => {
    const given = catchAll(2_000, 2_000);
    const program = compile(given);
    expect(program.ruleBlocks.destinations.length).toBe(2_001);
    expect(entries(program)).toBeLessThan(30_000);
    checkSame(given, program, 200);
  });

  test('`compile` copies the rules of a small shared group into the rule block (range of rules) of each source', () => {
    expect(compile(catchAll(10, 10)).lists.ruleBlocks.length).toBe(11);
  });

  test('`compile` stores 1,000 adjacent groups in one rule block if each group has one rule and applies to all sources', () => {
    const run = Array.from({ length: 1_000 }, (_, number) =>
      group(['0.0.0.0/0'], [rule({ destinations: [host(number)], protocol: 6 })]),
    );
    const own = Array.from(
      { length: 1_000 },
      (_, number): Group => ({
        ...group([], [rule({ action: 'deny', protocol: 17 })]),
        sources: [host(number)],
      }),
    );
    const given = policy([...run, ...own]);
    const program = compile(given);
    expect(program.ruleBlocks.destinations.length).toBe(1_001);
    checkSame(given, program, 100);
  });

  test('`compile` returns a compiled policy that agrees with the reference evaluator if the rule list of a source would need more than MAX_RULE_BLOCKS rule blocks', () => {
    const groups = Array.from(
      { length: 40 },
      (_, number): Group => ({
        ...group(
          [],
          some(20, (port) => rule({ protocol: 6, ports: [`${port * 40 + number}`] })),
        ),
        sources: number % 2 === 0 ? [{ address: 0, length: 0 }] : [host(number), host(number + 2)],
      }),
    );
    const given = policy(groups);
    const program = compile(given, { copies: 0 });
    checkSegments(program);
    checkSame(given, program, 500);
  });
});

describe('`compile` of a policy that exceeds a limit', () => {
  test('`compile` throws CompileTooLarge with need and limit if the policy has more ranks (rules and defaults) than allowed', () => {
    const given = policy([
      group(
        ['0.0.0.0/0'],
        some(10, () => rule()),
      ),
    ]);
    const error = tooLarge(() => compile(given, { limits: { ranks: 10 } }));
    expect([error.code, error.table, error.need, error.limit]).toEqual(['compile_too_large', 'ranks', 11, 10]);
  });

  test('`compile` throws CompileTooLarge if the compiled policy needs one interval more than the limit of entries', () => {
    const given = policy([
      group(
        ['0.0.0.0/0'],
        some(100, (number) => rule({ destinations: [host(number * 2)], ports: [`${number}`], protocol: 6 })),
      ),
    ]);
    // The limit `entries` also counts 100 rules, 1 set of sources, 2 entries of rule lists, 1 sequence of
    // groups and 1 rule block.
    const besides = 105;
    const needed = entries(compile(given)) + besides;
    expect(entries(compile(given, { limits: { entries: needed } }))).toBe(needed - besides);
    const error = tooLarge(() => compile(given, { limits: { entries: needed - 1 } }));
    expect([error.need, error.limit]).toEqual([needed, needed - 1]);
  });

  test('`compile` throws CompileTooLarge with the table name `lists` if groups with one source alternate with groups for all sources', () => {
    const groups = Array.from(
      { length: 6_000 },
      (_, number): Group => ({
        ...group([], [rule({ protocol: 6, ports: [`${number}`] })]),
        sources: number % 2 === 0 ? [{ address: 0, length: 0 }] : [host(number)],
      }),
    );
    const error = tooLarge(() => compile(policy(groups), { limits: { entries: 1_000_000 } }));
    expect(error.table).toBe('lists');
  });

  test('`compile` throws CompileTooLarge with the table name `source-port maps` if many ranges of source and destination ports overlap', () => {
    const rules = some(3_000, (number) =>
      rule({
        protocol: 6,
        from: [`${(number * 7919) % 60_000}-${((number * 7919) % 60_000) + 3_000}`],
        ports: [`${(number * 104_729) % 60_000}-${((number * 104_729) % 60_000) + 3_000}`],
      }),
    );
    const error = tooLarge(() => compile(policy([group(['0.0.0.0/0'], rules)]), { limits: { entries: 100_000 } }));
    expect(error.table).toBe('source-port maps');
  });

  test('`compile` throws CompileTooLarge with the table name `steps` if the compilation needs more steps than allowed', () => {
    const given = policy([
      group(
        ['0.0.0.0/0'],
        some(1_000, (port) => rule({ protocol: 6, ports: [`${port * 2}`] })),
      ),
    ]);
    expect(tooLarge(() => compile(given, { limits: { steps: 10_000 } })).table).toBe('steps');
  });
});

describe('`compile` of nested prefixes', () => {
  test('`compile` returns a compiled policy that agrees with the reference evaluator for 33 nested destinations at each end of the address space', () => {
    const rules = some(66, (number) => {
      const length = number % 33;
      const address = number < 33 ? 0 : length === 0 ? 0 : (0xffff_ffff << (32 - length)) >>> 0;
      return rule({ destinations: [{ address, length }], protocol: 6, ports: [`${100 - number}`] });
    });
    const given = policy([group(['0.0.0.0/0'], rules)]);
    checkSame(given, compile(given), 5_000);
  });

  test('`compile` writes one source interval if two groups contain the same addresses in several overlapping prefixes', () => {
    const sources = ['10.0.0.0/24', '10.0.0.0/24', '10.0.0.0/25', '10.0.0.128/25'];
    const given = policy([group(sources, [rule({ protocol: 6 })]), group(sources, [rule({ protocol: 17 })])]);
    expect(listing(compile(given)).split('\n').slice(1, 7)).toEqual([
      'sources',
      '  0.0.0.0-9.255.255.255 list 0',
      '  10.0.0.0-10.0.0.255 list 1',
      '  10.0.1.0-255.255.255.255 list 0',
      'lists',
      '  list 0: default #2 deny',
    ]);
  });
});

function checkPool(pool: IntervalPool): void {
  expect(pool.offsets[0]).toBe(0);
  expect(pool.offsets.at(-1)).toBe(pool.starts.length);
  for (let map = 0; map + 1 < pool.offsets.length; map++) {
    const from = pool.offsets[map];
    const to = pool.offsets[map + 1];
    checkMap({ starts: pool.starts.subarray(from, to), values: pool.values.subarray(from, to) });
  }
}

function checkMap({ starts, values }: Intervals): void {
  expect([starts[0], values.length]).toEqual([0, starts.length]);
  const wrong = Array.from(starts.keys())
    .slice(1)
    .filter((at) => (starts[at] ?? 0) <= (starts[at - 1] ?? 0) || values[at] === values[at - 1]);
  expect(wrong).toEqual([]);
}

function checkSegments(program: Program): void {
  const { lists, ruleBlocks: segments } = program;
  for (let list = 0; list < lists.defaults.length; list++) {
    const own = lists.ruleBlocks.subarray(lists.offsets[list], lists.offsets[list + 1]);
    expect(own.length).toBeLessThanOrEqual(MAX_RULE_BLOCKS);
    let last = -1;
    for (const segment of own) {
      const map = segments.destinations[segment] ?? 0;
      const leaves = [segments.wildcards[segment] ?? 0, ...mapValues(program.destinations, map)];
      const words = leaves.flatMap((leaf) => wordsOf(program, leaf));
      expect(Math.min(...words)).toBeGreaterThan(last);
      last = Math.max(...words);
    }
    expect(lists.defaults[list]).toBeGreaterThan(last);
  }
}

function mapValues(pool: IntervalPool, map: number): readonly number[] {
  return [...pool.values.subarray(pool.offsets[map] ?? pool.values.length, pool.offsets[map + 1])];
}

function wordsOf({ portMaps: leaves, sourcePortMaps: slices }: Program, leaf: number): readonly number[] {
  return mapValues(leaves, leaf)
    .flatMap((value) => (value < 2 ** 31 ? [value] : mapValues(slices, value - 2 ** 31)))
    .filter((value) => value !== 0x7fff_ffff);
}
