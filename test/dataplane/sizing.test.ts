import { readFileSync } from 'node:fs';
import { afterEach, expect, test } from 'vitest';
import type { MapName } from '#dataplane/loader/bpf-object.js';
import type { ObjectOptions } from '#dataplane/object/loaded-object.js';
import { fileAt } from '#test/docs/files.js';
import { type Loaded, loadForTest } from './loaded.js';

let kernel: Loaded | undefined;
afterEach(() => {
  kernel?.close();
  kernel = undefined;
});

/** The rows of the first table of docs/sizing.md: maps, a number with its unit, and the size in MiB. */
const [, table = ''] = /\| maps \|.*\n\|[-|]+\n((?:\|.*\n)+)/.exec(fileAt('docs/sizing.md').text) ?? [];
const rows: { maps: MapName[]; number: number; unit: string; mebibytes: number }[] = [];
for (const line of table.trim().split('\n')) {
  const [, names = '', , size = '', , mebibytes = ''] = line.split('|').map((cell) => cell.trim());
  const maps = [...names.matchAll(/`(\w+)`/g)].map(([, name]) => name as MapName);
  const [, number = '0', unit = ''] = /^([\d,]*) ?(\w+)/.exec(size) ?? [];
  rows.push({
    maps: maps.length > 0 ? maps : (rows.at(-1)?.maps ?? []),
    number: Number(number.replaceAll(',', '')),
    unit,
    mebibytes: Number(mebibytes),
  });
}

const OPTIONS: Readonly<Record<string, (number: number) => Partial<ObjectOptions>>> = {
  flows: (flowCapacity) => ({ flowCapacity }),
  addresses: (grantCapacity) => ({ grantCapacity }),
  hostname: () => ({}),
  lines: (slotLines) => ({ slotLines }),
  ranks: (rankCapacity) => ({ rankCapacity }),
  entries: (hitCapacity) => ({ hitCapacity }),
};

const memoryOf = (fd: number): number =>
  Number(/^memlock:\s+(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1]);

test('docs/sizing.md has a row for each of the 12 sizes of BPF maps', () => {
  expect(rows).toHaveLength(12);
});

test.each(rows)('docs/sizing.md states the memory of the BPF maps $maps for $number $unit as $mebibytes MiB', (row) => {
  kernel = loadForTest(OPTIONS[row.unit]?.(row.number));
  const bytes = row.maps.reduce((sum, name) => sum + memoryOf(kernel?.object.mapFd(name) ?? -1), 0);
  // The page rounds to three digits, and the kernel adds up to one page of 4 KiB to each map.
  const shown = row.mebibytes * 2 ** 20;
  expect(Math.abs(bytes - shown)).toBeLessThanOrEqual(0.005 * shown + 4_096 * row.maps.length);
});
