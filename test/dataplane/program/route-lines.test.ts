import { expect, test } from 'vitest';
import { LINE_WORDS } from '#contracts/datapath/datapath-numbers.js';
import { intervalsOf, type Route, routeLines } from '#dataplane/routes/route-lines.js';
import { Random } from '#test/seed.js';

const contains = ({ address, length }: Route, wanted: number): boolean =>
  Math.floor(wanted / 2 ** (32 - length)) === Math.floor(address / 2 ** (32 - length));

/**
 * Returns the expected interface index, by a comparison of `address` with every route. Returns 0 for a local
 * address, for an address without a route, and if two routes have the longest matching prefix.
 */
function interfaceOf(routes: readonly Route[], address: number): number {
  const covering = routes.filter((route) => contains(route, address));
  if (covering.some(({ local }) => local)) return 0;
  const longest = Math.max(...covering.map(({ length }) => length));
  const [route, ...others] = covering.filter(({ length }) => length === longest);
  return route === undefined || others.length > 0 ? 0 : route.ifindex;
}

/**
 * Searches the cache lines of the copied routes as the BPF program does. Returns the interface index for
 * `address`.
 */
function foundIn(lines: Uint32Array, address: number): number {
  const placeAmong = (line: number, keys: number): number =>
    lines.subarray(line * LINE_WORDS, line * LINE_WORDS + keys).filter((key) => key <= address).length - 1;
  const inner = placeAmong(0, 16);
  const bottom = inner * 16 + placeAmong(1 + inner, 16);
  return lines[(17 + bottom) * LINE_WORDS + 8 + placeAmong(17 + bottom, 8)] ?? Number.NaN;
}

function randomRoutes(random: Random, count: number): Route[] {
  return Array.from({ length: count }, () => {
    const length = random.below(33);
    const near = random.chance(0.5) ? 0x0a40_0000 + random.below(1 << 16) : random.word();
    return {
      address: Math.floor(near / 2 ** (32 - length)) * 2 ** (32 - length),
      length,
      local: random.chance(0.1),
      ifindex: random.below(4),
    };
  });
}

test.each([0, 1, 2, 17, 300, 1_000])(
  'a search in the cache lines of %i copied routes returns the interface of the longest matching prefix',
  (count) => {
    const random = new Random(count);
    const routes = randomRoutes(random, count);
    const lines = routeLines(routes);
    const edges = intervalsOf(routes).starts.flatMap((start) => [start, Math.max(0, start - 1)]);
    const addresses = [0, 0xffff_fffe, ...edges, ...Array.from({ length: 500 }, () => random.word())];
    const wrong = addresses.filter(
      (address) => lines !== null && foundIn(lines, address) !== interfaceOf(routes, address),
    );
    expect(lines).not.toBeNull();
    expect(wrong).toEqual([]);
  },
);

test('`routeLines` returns null for more routes than its cache lines can contain', () => {
  const routes = Array.from({ length: 1_025 }, (_, index) => ({
    address: index * 512,
    length: 24,
    local: false,
    ifindex: 1,
  }));
  expect(routeLines(routes.slice(0, 1_023))).not.toBeNull();
  expect(routeLines(routes)).toBeNull();
});
