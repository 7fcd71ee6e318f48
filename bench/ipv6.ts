import { dirname, join } from 'node:path';
import { BpfObject, builtObject } from '#dataplane/loader/bpf-object.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { Random } from '#test/seed.js';
import type { Bench, Row } from './bench.js';
import { LAYOUT_32, LAYOUT_64, LAYOUT_128, Trees } from './ipv6/trees.js';

const LOOKUPS = 500_000;
const ROUNDS = 7;
const SLOT_BYTES = (1 << 17) * 64;
const PREFIX = 0x2001_0db8_0000_0000n;
/** The lookups that the BPF program can measure, numbered as in its `enum kind`. */
const KIND = {
  ...{ keys32: 0, search32: 1, keys128: 2, search64: 3, search64AndRest: 4, search128: 5 },
  ...{ fill32: 6, flowKeys32: 7, find32: 8, fill128: 9, flowKeys128: 10, find128: 11 },
};
/**
 * The size of `struct request` of the BPF program in bytes, and the indexes of its results: of `missed` among
 * 32-bit words, of `elapsed` and `checksum` among 64-bit words.
 */
const REQUEST = { bytes: 48, missed: 7, elapsed: 4, checksum: 5 };
const CHECKED = 20_000;

type Request = {
  readonly kind: number;
  readonly count?: number;
  readonly trees?: readonly [source: number, destination: number];
  readonly flows?: number;
  readonly setMask?: number;
};

class Program {
  readonly #object = new BpfObject(join(dirname(builtObject), 'lookup.bpf.o'));
  readonly #request = new Uint8Array(REQUEST.bytes);
  readonly #run: TestRun;
  readonly #slots: MappedMemory;

  constructor() {
    this.#object.load();
    this.#run = new TestRun(this.#object.programFd('weir_bench'), undefined, this.#request, undefined);
    this.#slots = new MappedMemory('program', this.#object.mapFd('program'), 2 * SLOT_BYTES);
  }

  slot(number: 0 | 1): Uint32Array {
    const words = this.#slots.words.subarray((number * SLOT_BYTES) / 4, ((number + 1) * SLOT_BYTES) / 4);
    return words.fill(0);
  }

  /** Runs one measurement. Returns the nanoseconds of one lookup, and the number of flows not found. */
  run({ kind, count = LOOKUPS, trees = [0, 0], flows = 0, setMask = 0 }: Request): {
    ns: number;
    missed: number;
    checksum: bigint;
  } {
    const words = new Uint32Array(this.#request.buffer);
    words.fill(0).set([kind, count, 1, ...trees, flows, setMask]);
    this.#run.run();
    const wide = new BigUint64Array(this.#request.buffer);
    const ns = Number(wide[REQUEST.elapsed]) / count;
    return { ns, missed: words[REQUEST.missed] ?? 0, checksum: wide[REQUEST.checksum] ?? 0n };
  }

  close(): void {
    this.#slots.unmap();
    this.#object.close();
  }
}

/**
 * Measures each request in turn, several times, and returns the least nanoseconds of each. Other work on the
 * machine then disturbs all of them alike.
 */
function least(program: Program, requests: readonly Request[]): number[] {
  const best = requests.map(() => Number.POSITIVE_INFINITY);
  for (let round = 0; round < ROUNDS; round++)
    for (const [at, request] of requests.entries()) best[at] = Math.min(best[at] ?? 0, program.run(request).ns);
  return best;
}

/** Returns the index of the last boundary that is not above `x`. */
function indexOf(boundaries: readonly number[], x: number): number {
  let [low, high] = [0, boundaries.length];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((boundaries[middle] ?? 0) <= x) low = middle;
    else high = middle;
  }
  return low;
}

/**
 * Throws if the BPF program finds other values than a binary search does. Each address consists of `each`
 * random numbers. `expected` returns the value of an address; its second argument is 0 for the source and 1
 * for the destination.
 */
function verify(
  program: Program,
  request: Request,
  each: number,
  expected: (words: number[], place: number) => number,
) {
  let random = 1;
  const next = (): number => {
    random ^= random << 13;
    random ^= random >>> 17;
    random ^= random << 5;
    return random >>> 0;
  };
  let sum = 0;
  for (let lookup = 0; lookup < CHECKED; lookup++)
    for (const place of [0, 1]) sum += expected(Array.from({ length: each }, next), place);
  const { checksum } = program.run({ ...request, count: CHECKED });
  if (checksum !== BigInt(sum))
    throw new Error(
      `search for addresses by the method ${request.kind}: the checksum of the results is ${checksum}, expected ${sum}`,
    );
}

/** Returns `count` random boundaries in ascending order, of which the first is 0, as 32-bit numbers. */
function boundaries(random: Random, count: number): number[] {
  const found = new Set<number>([0]);
  while (found.size < count) found.add(random.below(2 ** 32));
  return [...found].sort((a, b) => a - b);
}

function searchRows(program: Program, intervals: number): Row[] {
  const random = new Random(intervals);
  const narrow = new Trees(program.slot(0), LAYOUT_32);
  const both = [boundaries(random, intervals), boundaries(random, intervals)] as const;
  const values = both[0].map((_, at) => at + 1);
  const treesOf = (trees: Trees, keyOf: (boundary: number) => bigint): readonly [number, number] => {
    const [source, destination] = both.map((list) =>
      trees.add(
        list.map((boundary, at) => (at === 0 ? 0n : keyOf(boundary))),
        values,
      ),
    );
    return [source ?? 0, destination ?? 0];
  };
  const trees32 = treesOf(narrow, BigInt);
  const indexed = ([upper = 0]: number[], place: number): number => 1 + indexOf(both[place] ?? [], upper);
  verify(program, { kind: KIND.search32, trees: trees32 }, 1, indexed);
  const [keys32 = 0, search32 = 0] = least(program, [{ kind: KIND.keys32 }, { kind: KIND.search32, trees: trees32 }]);
  const upper = (boundary: number): bigint => PREFIX | BigInt(boundary);

  const medium = new Trees(program.slot(1), LAYOUT_64);
  const trees64 = treesOf(medium, upper);
  verify(program, { kind: KIND.search64, trees: trees64 }, 2, indexed);
  const [keys64 = 0, search64 = 0] = least(program, [{ kind: KIND.keys128 }, { kind: KIND.search64, trees: trees64 }]);

  // A tree for the lower 64 bits below every boundary: the policy names hosts in every network.
  const rest = new Trees(program.slot(1), LAYOUT_64);
  const hosts = values.map(() => boundaries(random, 4));
  const hostTrees = hosts.map((starts) =>
    rest.add(
      starts.map((start) => BigInt(start) << 32n),
      [1, 2, 3, 4],
    ),
  );
  const [source = 0, destination = 0] = both.map((list) =>
    rest.add(
      list.map((boundary, at) => (at === 0 ? 0n : upper(boundary))),
      hostTrees,
    ),
  );
  verify(program, { kind: KIND.search64AndRest, trees: [source, destination] }, 2, ([upper = 0, lower = 0], place) => {
    return 1 + indexOf(hosts[indexOf(both[place] ?? [], upper)] ?? [], lower);
  });
  const [searchRest = 0] = least(program, [{ kind: KIND.search64AndRest, trees: [source, destination] }]);

  const wide = new Trees(program.slot(1), LAYOUT_128);
  const trees128 = treesOf(wide, (boundary) => (upper(boundary) << 64n) | BigInt(random.below(2 ** 32)));
  verify(program, { kind: KIND.search128, trees: trees128 }, 2, indexed);
  const [search128 = 0] = least(program, [{ kind: KIND.search128, trees: trees128 }]);

  const label = `${intervals.toLocaleString('en')} prefixes`;
  const of32 = search32 - keys32;
  const rows: [string, number][] = [
    ['64-bit keys', search64 - keys64],
    ['64-bit keys, then the lower 64 bits', searchRest - keys64],
    ['128-bit keys', search128 - keys64],
  ];
  return [
    { what: `${label}: source and destination, 32-bit keys`, value: of32, unit: 'ns' },
    ...rows.flatMap(([what, ns]) => [
      { what: `${label}: source and destination, ${what}`, value: ns, unit: 'ns' },
      { what: `${label}: ${what} relative to 32-bit keys`, value: ns / of32, unit: '×' },
    ]),
    { what: `${label}: both trees, 32-bit keys`, value: narrow.lines / 16, unit: 'KiB' },
    { what: `${label}: both trees, 64-bit keys`, value: medium.lines / 16, unit: 'KiB' },
    { what: `${label}: both trees, 128-bit keys`, value: wide.lines / 16, unit: 'KiB' },
  ];
}

function flowRows(flows: number): Row[] {
  const program = new Program();
  try {
    const place = { flows, setMask: (2 * flows) / 8 - 1 };
    for (const kind of [KIND.fill32, KIND.fill128]) {
      const { missed } = program.run({ ...place, kind, count: flows });
      if (missed > flows / 1_000) throw new Error(`${missed} of ${flows} flows did not fit into the flow table`);
    }
    const [keys32 = 0, find32 = 0, keys128 = 0, find128 = 0] = least(
      program,
      [KIND.flowKeys32, KIND.find32, KIND.flowKeys128, KIND.find128].map((kind) => ({ ...place, kind })),
    );
    const label = `${flows.toLocaleString('en')} flows`;
    return [
      { what: `${label}: hash of a key of 16 bytes, with the loop`, value: keys32, unit: 'ns' },
      { what: `${label}: hash of a key of 40 bytes, with the loop`, value: keys128, unit: 'ns' },
      { what: `${label}: hash, find and count, one cache line`, value: find32, unit: 'ns' },
      { what: `${label}: hash, find and count, two cache lines`, value: find128, unit: 'ns' },
      { what: `${label}: two cache lines relative to one`, value: find128 / find32, unit: '×' },
    ];
  } finally {
    program.close();
  }
}

async function run(): Promise<readonly Row[]> {
  const program = new Program();
  try {
    const searches = [10, 1_000, 10_000, 50_000].flatMap((intervals) => searchRows(program, intervals));
    return [...searches, ...[4_096, 65_536].flatMap(flowRows)];
  } finally {
    program.close();
  }
}

/**
 * Measures searches with keys of 32, 64 and 128 bits, and flow tables with keys of 16 and 40 bytes, to
 * compare IPv6 with IPv4. The BPF program is a model; only the search with 32 bits is that of the datapath.
 */
export const ipv6Bench: Bench = { name: 'ipv6', run };
