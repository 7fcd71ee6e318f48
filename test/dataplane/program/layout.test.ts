import { describe, expect, test } from 'vitest';
import { HEADER, layout } from '#dataplane/program/layout.js';
import { Lines } from '#dataplane/program/lines.js';
import { IMAGE_MAGIC, LAYOUT_VERSION, LINE_WORDS } from '#dataplane/program/numbers.js';
import { addTree } from '#dataplane/program/tree.js';
import { classify } from '#policy/classify.js';
import { compile } from '#policy/compile.js';
import { generatePolicy, packetGenerator } from '#test/policy/generate.js';
import { Random, seedOf } from '#test/seed.js';
import { walkImage } from './image-walk.js';

describe('the image of a program', () => {
  test('answers as the program does', () => {
    const seed = seedOf(7_411);
    for (let number = 0; number < 120; number++) {
      const random = new Random(seed + number * 7919);
      const policy = generatePolicy(random, number % 3 === 0 ? { groups: 20, rules: 10 } : {});
      const program = compile(policy);
      const image = layout(program);
      const packet = packetGenerator(random, policy);
      for (let count = 0; count < 200; count++) {
        const tried = packet();
        if (walkImage(image, tried) === classify(program, tried)) continue;
        expect.fail(`seed ${seed + number * 7919}: ${JSON.stringify(tried)}`);
      }
    }
    console.log(`image: 120 policies × 200 packets, seed ${seed}`);
  });

  test('is the same bytes for the same policy, and begins with its header', () => {
    const make = () => layout(compile(generatePolicy(new Random(42))));
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
    });
    expect(image.words.length).toBe(image.lines * LINE_WORDS);
  });
});

describe('a tree', () => {
  test.each([
    [5, 1, 0],
    [8, 1, 0],
    [9, 3, 1],
    [128, 17, 1],
    [129, 20, 2],
    [100_000, 13_336, 4],
  ])('of %i intervals has %i lines and %i inner levels', (intervals, count, depth) => {
    const starts = Uint32Array.from({ length: intervals }, (_, index) => index * 3);
    const lines = new Lines();
    const ref = addTree(lines, { starts, values: starts }, 0, intervals, (raw) => raw);
    expect({ count: lines.count, depth: ref & 7 }).toEqual({ count, depth });
  });

  test('of at most four intervals shares a line with another', () => {
    const starts = Uint32Array.of(0, 10, 20, 30);
    const lines = new Lines();
    const refs = [4, 1, 2].map((intervals) => addTree(lines, { starts, values: starts }, 0, intervals, (raw) => raw));
    expect(refs).toEqual([6, 7, 8 + 6]);
    expect(Array.from(lines.toWords().subarray(0, LINE_WORDS))).toEqual([
      ...[0, 10, 20, 30],
      ...[0, 10, 20, 30],
      ...[0, 0xffff_ffff, 0xffff_ffff, 0xffff_ffff],
      ...[0, 0, 0, 0],
    ]);
  });
});
