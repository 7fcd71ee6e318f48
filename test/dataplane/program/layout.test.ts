import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { IMAGE_MAGIC, LAYOUT_VERSION, LINE_WORDS } from '#contracts/datapath/datapath-numbers.js';
import { IPPROTO } from '#contracts/policy/policy-model.js';
import { Lines } from '#dataplane/image/cache-lines.js';
import { HEADER, type Image, layout } from '#dataplane/image/program-image.js';
import { addTree } from '#dataplane/image/tree.js';
import { compile } from '#policy/compile/compile.js';
import { classify } from '#policy/evaluate/classify.js';
import { generateGrants, generatePolicy, ipv6PacketGenerator, packetGenerator } from '#test/policy/generate.js';
import { grantedNames } from '#test/policy/granted-names.js';
import { group, packet, policy, rule } from '#test/policy/sample.js';
import { Random, seedOf } from '#test/seed.js';
import { walkImage } from './image-walk.js';

describe('the program image (a compiled policy as cache lines)', () => {
  test('the program image (a compiled policy as cache lines) gives each packet the verdict word that `classify` returns for the compiled policy', () => {
    const seed = seedOf(7_411);
    for (let number = 0; number < 120; number++) {
      const random = new Random(seed + number * 7919);
      const size = number % 3 === 0 ? { groups: 20, rules: 10 } : {};
      const generated = generatePolicy(random, { ...size, families: ['ipv4', 'ipv6'] });
      const program = compile(generated, { ipv6: true });
      const image = layout(program);
      const grants = generateGrants(number);
      const [ipv4, ipv6] = [packetGenerator(random, generated), ipv6PacketGenerator(random, generated)];
      for (let count = 0; count < 400; count++) {
        const tried = count % 2 === 0 ? ipv4() : ipv6();
        const names = grantedNames(program, tried.destination, grants);
        if (walkImage(image, tried, new Set(), names) === classify(program, tried, names)) continue;
        expect.fail(`seed ${seed + number * 7919}: ${inspect(tried)}`);
      }
    }
    console.log(`image: 120 policies × 400 packets of both families, seed ${seed}`);
  });

  test('the program image (a compiled policy as cache lines) has the same bytes for the same policy, and begins with the header', () => {
    const make = () => layout(compile(generatePolicy(new Random(42), { hostnames: false })));
    const image = make();
    expect(make()).toEqual(image);
    const header = Object.fromEntries(Object.entries(HEADER).map(([name, word]) => [name, image.words[word]]));
    expect(header).toEqual({
      magic: IMAGE_MAGIC,
      layoutVersion: LAYOUT_VERSION,
      lines: image.lines,
      generationLow: 0,
      generationHigh: 0,
      sources: header.sources,
      prefetchesLists: 0,
      hasNames: 0,
      sinceLow: 0xffff_ffff,
      sinceHigh: 0xffff_ffff,
      bases: 0xffff_ffff,
      ipv6: 0xffff_ffff,
    });
    expect(image.words.length).toBe(image.lines * LINE_WORDS);
  });

  test('the program image (a compiled policy as cache lines) has the same bytes in new memory and in memory that contained another image', () => {
    const lines = new Lines();
    for (let number = 0; number < 60; number++) {
      const size = number % 2 === 0 ? { groups: 20, rules: 10 } : {};
      const generated = generatePolicy(new Random(number), { ...size, families: ['ipv4', 'ipv6'] });
      const program = compile(generated, { ipv6: number % 3 > 0 });
      const { words, lines: count } = layout(program, lines);
      expect({ number, image: { words: words.slice(), lines: count } }).toEqual({ number, image: layout(program) });
    }
  });

  test('the program image lets the datapath predict the cache line of a port map (ports and verdicts of a destination), with an error below four cache lines', () => {
    const network = (index: number): string => `20.${index >> 8}.${index & 255}.0`;
    const rules = Array.from({ length: 40_000 }, (_, index) =>
      rule({
        id: `r${index}`,
        to: [`${network(index)}/24`],
        protocol: IPPROTO.tcp,
        destinationPorts: [{ low: index, high: index }],
      }),
    );
    const image = layout(compile(policy([group(['0.0.0.0/0'], rules)])));
    for (const index of [0, 17, 20_000, 39_999]) {
      const tried = packet({ destination: network(index), destinationPort: index });
      const touched = new Set<number>();
      walkImage(image, tried, touched);
      const [list = 0, ...tree] = [...touched].slice(1 + sourceLines(image));
      const bottom = tree.at(-2) ?? 0;
      const said = ((image.words[list * LINE_WORDS + 14] ?? 0) + 4 * bottom) >>> 0;
      const leaf = tree.at(-1) ?? 0;
      // The port map is in one of the four cache lines from the predicted line on. Intervals without a port
      // map can move it to the line before.
      expect({ index, ahead: leaf - said }).toEqual({ index, ahead: Math.min(3, Math.max(-1, leaf - said)) });
    }
  });
});

/** Returns the number of cache lines of the source tree that a search reads. */
function sourceLines(image: Image): number {
  const ref = image.words[HEADER.sources] ?? 0;
  return (ref & 7) >= 6 ? 1 : (ref & 7) + 1;
}

describe('a search tree of the program image', () => {
  test.each([
    [5, 1, 0],
    [8, 1, 0],
    [9, 3, 1],
    [128, 17, 1],
    [129, 20, 2],
    [100_000, 13_336, 4],
  ])(
    'a search tree of the program image with %i intervals has %i cache lines and %i inner levels',
    (intervals, count, depth) => {
      const starts = Uint32Array.from({ length: intervals }, (_, index) => index * 3);
      const lines = new Lines();
      const ref = addTree(lines, { starts, values: starts }, 0, intervals);
      expect({ count: lines.count, depth: ref & 7 }).toEqual({ count, depth });
    },
  );

  test('a search tree of the program image with at most four intervals shares a cache line with another tree', () => {
    const starts = Uint32Array.of(0, 10, 20, 30);
    const lines = new Lines();
    const refs = [4, 1, 2].map((intervals) => addTree(lines, { starts, values: starts }, 0, intervals));
    expect(refs).toEqual([6, 7, 8 + 6]);
    expect(Array.from(lines.toWords().subarray(0, LINE_WORDS))).toEqual([
      ...[0, 10, 20, 30],
      ...[0, 10, 20, 30],
      ...[0, 0xffff_ffff, 0xffff_ffff, 0xffff_ffff],
      ...[0, 0, 0, 0],
    ]);
  });
});
