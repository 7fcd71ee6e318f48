import { expect, test } from 'vitest';
import { parseConfig } from '#config/load.js';
import { capacityOf, linesFor } from '#dataplane/grants/grant-layout.js';
import { capacityFor, MAX_SLOT_LINES, smallestCapacity } from '#dataplane/object/capacity.js';

const configuration = (lines: number): string =>
  JSON.stringify({
    version: 1,
    node: { id: 'n', data_dir: '/nonexistent' },
    dataplane: { interfaces: ['lan0'], program_capacity: lines },
  });

test('the capacity of a BPF map starts at the smallest tier, grows to the first tier that is large enough, and never shrinks', () => {
  const small = smallestCapacity(4_194_304);
  expect(small).toEqual({ slotCount: 2, slotLines: 8_192, rankCapacity: 8_192, hitCapacity: 8_192 });
  const grown = capacityFor({ slots: 2, lines: 8_193, ranks: 70_000, hits: 1 }, small, 4_194_304);
  expect(grown).toEqual({ slotCount: 2, slotLines: 65_536, rankCapacity: 524_288, hitCapacity: 8_192 });
  expect(capacityFor({ slots: 2, lines: 1, ranks: 1, hits: 1 }, grown, 4_194_304)).toEqual(grown);
});

test('the configured limit is the largest capacity of a BPF map, and an error names the BPF map that needs more', () => {
  expect(capacityFor({ slots: 2, lines: 70_000, ranks: 1, hits: 1 }, undefined, 100_000).slotLines).toBe(100_000);
  expect(() => capacityFor({ slots: 2, lines: 100_001, ranks: 1, hits: 1 }, undefined, 100_000)).toThrow(
    expect.objectContaining({ code: 'capacity_exceeded', table: 'program', need: 100_001, limit: 100_000 }),
  );
});

test('a program slot (place of a compiled policy in the kernel) has at most MAX_SLOT_LINES cache lines, and a configuration with a higher limit is invalid', () => {
  expect(capacityFor({ slots: 2, lines: 4_194_305, ranks: 1, hits: 1 }, undefined, MAX_SLOT_LINES).slotLines).toBe(
    MAX_SLOT_LINES,
  );
  const issue = /program_capacity: must be a whole number from 8192 to 8388608/;
  expect(() => parseConfig(configuration(MAX_SLOT_LINES + 1), 'weir.json', {})).toThrow(issue);
  expect(parseConfig(configuration(MAX_SLOT_LINES), 'weir.json', {}).config.dataplane?.programCapacity).toBe(
    MAX_SLOT_LINES,
  );
});

test('the BPF map hits, and each slot of rank_hits, has at most 2,097,152 entries, even if a policy has more rules', () => {
  const { rankCapacity, hitCapacity } = capacityFor({ slots: 2, lines: 1, ranks: 1e8, hits: 1e8 }, undefined, 8_192);
  expect([rankCapacity, hitCapacity]).toEqual([2_097_152, 2_097_152]);
});

test('`capacityOf` is the inverse of `linesFor`: it returns the capacity of a grant table from its number of cache lines', () => {
  for (const capacity of [1, 2, 3, 4, 1_023, 1_024, 262_144, 1_000_001]) {
    expect(capacityOf(linesFor(capacity))).toBe(capacity);
  }
});
