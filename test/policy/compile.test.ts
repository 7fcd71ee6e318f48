import { describe, expect, test } from 'vitest';
import type { IntervalPool, Intervals } from '#contracts/interval-map.js';
import type { Group, Policy, Prefix, Rule } from '#contracts/policy-model.js';
import { MAX_SEGMENTS, type Program } from '#contracts/program.js';
import { NO_MATCH, rankOf, verdictWord } from '#contracts/verdict-word.js';
import { compile } from '#policy/compile/compile.js';
import { CompileMemory } from '#policy/compile/compile-memory.js';
import { classify } from '#policy/evaluate/classify.js';
import { evaluate } from '#policy/evaluate/evaluate.js';
import { listing } from '#policy/explain/listing.js';
import { CompileTooLarge } from '#policy/model/budget.js';
import { outcomeAt, places } from '#policy/model/rank.js';
import { generatePolicy, packetGenerator } from '#test/policy/generate.js';
import { group, policy, rule } from '#test/policy/sample.js';
import { Random } from '#test/seed.js';

function host(number: number): Prefix {
  return { address: 0x0a00_0000 + number, length: 32 };
}

function some(count: number, make: (number: number) => Rule): Rule[] {
  return Array.from({ length: count }, (_, number) => make(number));
}

function entries(program: Program): number {
  const { sources, destinations, leaves, slices } = program;
  return sources.starts.length + destinations.starts.length + leaves.starts.length + slices.starts.length;
}

function checkSame(given: Policy, program: Program, packets: number): void {
  const next = packetGenerator(new Random(1), given);
  for (let count = 0; count < packets; count++) {
    const tried = next();
    const { rank, verdict, audited } = evaluate(given, tried);
    expect(classify(program, tried)).toBe(verdictWord(rank, verdict, audited));
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

/** A group of many rules for all sources, and many groups of one source and one rule each. */
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

describe('a compiled program', () => {
  test('has equal bytes for equal policies', () => {
    for (let seed = 0; seed < 50; seed++) {
      const given = generatePolicy(new Random(seed), { groups: 8, rules: 12 });
      expect(compile(structuredClone(given))).toEqual(compile(given));
    }
  });

  test('does not depend on earlier compilations', () => {
    for (const copies of [undefined, 0]) {
      const random = new Random(99);
      const memory = new CompileMemory();
      let given = generatePolicy(random, { groups: 12, rules: 8 });
      for (let step = 0; step < 150; step++) {
        const other = generatePolicy(random, { groups: 12, rules: 8 });
        const at = random.below(given.groups.length + 1);
        const fresh = other.groups.slice(0, random.below(2));
        given = { ...given, groups: given.groups.toSpliced(at, random.below(2), ...fresh) };
        const options = copies === undefined ? {} : { copies };
        expect(compile(given, { ...options, memory })).toEqual(compile(given, options));
      }
    }
  });

  test('exceeds the same limit with or without results of earlier compilations', () => {
    const given = catchAll(200, 200);
    const limits = { steps: 20_000 };
    const memory = new CompileMemory();
    compile(given, { memory });
    expect(tooLarge(() => compile(given, { limits })).table).toBe('steps');
    expect(tooLarge(() => compile(given, { limits, memory })).table).toBe('steps');
  });

  test('contains in every word the verdict of the place at its rank', () => {
    for (let seed = 0; seed < 60; seed++) {
      const given = generatePolicy(new Random(seed), { groups: 8, rules: 12 });
      const { leaves, slices, lists } = compile(given);
      const found = places(given);
      const words = [...leaves.values, ...slices.values, ...lists.defaults].filter((value) => value < NO_MATCH);
      for (const value of words) {
        const { verdict, audited } = outcomeAt(given, found[rankOf(value)] ?? { kind: 'policy_default' });
        expect(value).toBe(verdictWord(rankOf(value), verdict, audited));
      }
    }
  });

  test('stores a large group shared by several populations as a segment of its own', () => {
    const rules = some(2_000, (number) => rule({ destinations: [host(number)], protocol: 17 }));
    const program = compile(
      policy([group(['10.1.0.0/16'], [rule({ protocol: 6, ports: ['80'] })]), group(['10.0.0.0/8'], rules)]),
    );
    expect(Array.from(program.lists.offsets)).toEqual([0, 0, 1, 3]);
    expect(program.segments.destinations.length).toBe(2);
  });

  test('has maps that start at 0, ascend, and never repeat a value', () => {
    for (let seed = 0; seed < 100; seed++) {
      const program = compile(generatePolicy(new Random(seed), { groups: 8, rules: 12 }));
      checkMap(program.sources);
      for (const pool of [program.destinations, program.leaves, program.slices]) checkPool(pool);
    }
  });

  test('has segments with ascending ranks, at most MAX_SEGMENTS for each list', () => {
    for (let seed = 0; seed < 100; seed++) {
      const given = generatePolicy(new Random(seed), { groups: 30, rules: 4, hostnames: false });
      checkSegments(compile(given, { copies: 0 }));
    }
  });

  test('uses every leaf and every slice', () => {
    for (let seed = 0; seed < 50; seed++) {
      const { segments, destinations, leaves, slices, nameLeaves } = compile(generatePolicy(new Random(seed)));
      const used = new Set([...destinations.values, ...segments.wildcards, ...segments.named, ...nameLeaves.leaves]);
      for (let leaf = 0; leaf + 1 < leaves.offsets.length; leaf++) expect(used).toContain(leaf);
      const usedSlices = new Set(
        [...leaves.values].filter((value) => value >= 2 ** 31).map((value) => value - 2 ** 31),
      );
      expect(usedSlices.size).toBe(slices.offsets.length - 1);
    }
  });
});

describe('compiling a group that many sources share', () => {
  test('stores its rules once', () => {
    const given = catchAll(2_000, 2_000);
    const program = compile(given);
    expect(program.segments.destinations.length).toBe(2_001);
    expect(entries(program)).toBeLessThan(30_000);
    checkSame(given, program, 200);
  });

  test('merges its rules into each list if the copies are small', () => {
    expect(compile(catchAll(10, 10)).lists.segments.length).toBe(11);
  });

  test('stores a run of small shared groups once', () => {
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
    expect(program.segments.destinations.length).toBe(1_001);
    checkSame(given, program, 100);
  });

  test('decides packets correctly if a list has more parts than MAX_SEGMENTS', () => {
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

describe('compiling a policy that is too large', () => {
  test('throws for too many ranks', () => {
    const given = policy([
      group(
        ['0.0.0.0/0'],
        some(10, () => rule()),
      ),
    ]);
    const error = tooLarge(() => compile(given, { limits: { ranks: 10 } }));
    expect([error.code, error.table, error.need, error.limit]).toEqual(['compile_too_large', 'ranks', 11, 10]);
  });

  test('throws at the table that exceeds the limit of entries', () => {
    const given = policy([
      group(
        ['0.0.0.0/0'],
        some(100, (number) => rule({ destinations: [host(number * 2)], ports: [`${number}`], protocol: 6 })),
      ),
    ]);
    const besides = 105; // the rules, a population, its list of two, its run and its segment
    const needed = entries(compile(given)) + besides;
    expect(entries(compile(given, { limits: { entries: needed } }))).toBe(needed - besides);
    const error = tooLarge(() => compile(given, { limits: { entries: needed - 1 } }));
    expect([error.need, error.limit]).toEqual([needed, needed - 1]);
  });

  test('stops if sources interleave with shared groups', () => {
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

  test('stops if source ports and destination ports multiply', () => {
    const rules = some(3_000, (number) =>
      rule({
        protocol: 6,
        from: [`${(number * 7919) % 60_000}-${((number * 7919) % 60_000) + 3_000}`],
        ports: [`${(number * 104_729) % 60_000}-${((number * 104_729) % 60_000) + 3_000}`],
      }),
    );
    const error = tooLarge(() => compile(policy([group(['0.0.0.0/0'], rules)]), { limits: { entries: 100_000 } }));
    expect(error.table).toBe('slices');
  });

  test('stops at the limit of steps', () => {
    const given = policy([
      group(
        ['0.0.0.0/0'],
        some(1_000, (port) => rule({ protocol: 6, ports: [`${port * 2}`] })),
      ),
    ]);
    expect(tooLarge(() => compile(given, { limits: { steps: 10_000 } })).table).toBe('steps');
  });
});

describe('compiling nested prefixes', () => {
  test('supports 33 nested destinations at both ends of the address space', () => {
    const rules = some(66, (number) => {
      const length = number % 33;
      const address = number < 33 ? 0 : length === 0 ? 0 : (0xffff_ffff << (32 - length)) >>> 0;
      return rule({ destinations: [{ address, length }], protocol: 6, ports: [`${100 - number}`] });
    });
    const given = policy([group(['0.0.0.0/0'], rules)]);
    checkSame(given, compile(given), 5_000);
  });

  test('gives one list to a source that several groups contain more than once', () => {
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
  const { lists, segments } = program;
  for (let list = 0; list < lists.defaults.length; list++) {
    const own = lists.segments.subarray(lists.offsets[list], lists.offsets[list + 1]);
    expect(own.length).toBeLessThanOrEqual(MAX_SEGMENTS);
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

function wordsOf({ leaves, slices }: Program, leaf: number): readonly number[] {
  return mapValues(leaves, leaf)
    .flatMap((value) => (value < 2 ** 31 ? [value] : mapValues(slices, value - 2 ** 31)))
    .filter((value) => value !== 0x7fff_ffff);
}
