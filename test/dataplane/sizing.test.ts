import { readFileSync } from 'node:fs';
import { afterEach, expect, test } from 'vitest';
import type { Family } from '#contracts/policy/policy-model.js';
import type { MapName } from '#dataplane/loader/bpf-object.js';
import { fileAt } from '#test/docs/files.js';
import { type Loaded, loadForTest, type TestOptions } from './loaded.js';

let kernel: Loaded<Family> | undefined;
afterEach(() => {
  kernel?.close();
  kernel = undefined;
});

/** The rows of the first table of docs/sizing.md: maps, a number with its unit, and the size in MiB. */
const [, table = ''] = /\| maps \|.*\n\|[-|]+\n((?:\|.*\n)+)/.exec(fileAt('docs/sizing.md').text) ?? [];
const rows: { family: Family; maps: MapName[]; number: number; unit: string; mebibytes: number }[] = [];
for (const line of table.trim().split('\n')) {
  const [, names = '', , size = '', , mebibytes = ''] = line.split('|').map((cell) => cell.trim());
  const maps = [...names.matchAll(/`(?:ipv6\/)?(\w+)`/g)].map(([, name]) => name as MapName);
  const [, number = '0', unit = ''] = /^([\d,]*) ?(\w+)/.exec(size) ?? [];
  rows.push({
    family: names.includes('ipv6/') ? 'ipv6' : 'ipv4',
    maps: maps.length > 0 ? maps : (rows.at(-1)?.maps ?? []),
    number: Number(number.replaceAll(',', '')),
    unit,
    mebibytes: Number(mebibytes),
  });
}

const OPTIONS: Readonly<Record<string, (number: number) => TestOptions<Family>>> = {
  flows: (flowCapacity) => ({ flowCapacity }),
  addresses: (grantCapacity) => ({ grantCapacity }),
  IPv6: (grantCapacity) => ({ grantCapacity, family: 'ipv6' }),
  hostname: () => ({}),
  lines: (slotLines) => ({ slotLines }),
  ranks: (rankCapacity) => ({ rankCapacity }),
  entries: (hitCapacity) => ({ hitCapacity }),
};

const memoryOf = (fd: number): number =>
  Number(/^memlock:\s+(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1]);

test('docs/sizing.md has a row for each of the 13 sizes of BPF maps', () => {
  expect(rows).toHaveLength(13);
});

test.each(rows)('docs/sizing.md states the memory of the BPF maps $maps for $number $unit as $mebibytes MiB', (row) => {
  kernel = loadForTest<Family>(OPTIONS[row.unit]?.(row.number));
  const object = row.family === 'ipv6' ? kernel.ipv6?.object : kernel.object;
  const bytes = row.maps.reduce((sum, name) => sum + memoryOf(object?.mapFd(name) ?? -1), 0);
  // The page rounds to three digits, and the kernel adds up to one page of 4 KiB to each map.
  const shown = row.mebibytes * 2 ** 20;
  expect(Math.abs(bytes - shown)).toBeLessThanOrEqual(0.005 * shown + 4_096 * row.maps.length);
});
