import { expect, test } from 'vitest';
import { CapacityExceeded } from '#contracts/datapath/datapath.js';
import { LINE, linesFor, PATTERN } from '#dataplane/grants/grant-layout.js';
import { Grants } from '#dataplane/grants/grants.js';

const SECOND = 1_000_000_000n;
const NOW = 1_000n * SECOND;

function make(capacity: number, patterns: number): Grants {
  const words = { grants: linesFor(capacity) * LINE.words, patterns: patterns * PATTERN.words };
  return new Grants(
    { grants: new Map([['ipv4', new Uint32Array(words.grants)]]), patterns: new Uint32Array(words.patterns) },
    { capacity, used: [], random: Uint32Array.of(0x9e3779b1, 0x85ebca77, 0xc2b2ae3d, 0x27d4eb2f) },
  );
}

function stage(grants: Grants, slot: 0 | 1, patterns: readonly string[]): void {
  grants.makeRoom(patterns, () => {});
  grants.fill(slot, patterns);
}

test('a policy with as many hostname patterns as the pattern table has room for is accepted, and one with more patterns is refused without a change', () => {
  const grants = make(8, 3);
  stage(grants, 1, ['a', 'b', 'c']);
  grants.activated([1]);
  const refused = () => grants.makeRoom(['d'], () => {});
  expect(refused).toThrow(new CapacityExceeded('patterns', 4, 3));
  expect(grants.patterns).toEqual({ entries: 3, capacity: 3 });
  stage(grants, 0, ['a']);
  grants.activated([0]);
  let waited = 0;
  grants.makeRoom(['a', 'd', 'e'], () => waited++);
  grants.fill(1, ['a', 'd', 'e']);
  expect([waited, grants.patterns.entries]).toEqual([1, 3]);
});

test('the list of DNS grants (addresses learned for hostname patterns) omits expired grants and grants of removed patterns', () => {
  const grants = make(8, 8);
  stage(grants, 1, ['a', 'b']);
  grants.activated([1]);
  grants.add(
    [
      { pattern: 'a', addresses: [1, 2], expiresAtNs: NOW + 60n * SECOND },
      { pattern: 'b', addresses: [2], expiresAtNs: NOW + 90n * SECOND },
      { pattern: 'b', addresses: [3], expiresAtNs: NOW + 2n * SECOND },
      { pattern: 'gone', addresses: [4], expiresAtNs: NOW + 90n * SECOND },
    ],
    NOW,
  );
  const listed = grants.learned(NOW + 3n * SECOND).map(({ pattern, addresses }) => [pattern, ...addresses].join());
  expect(listed.sort()).toEqual([expect.stringMatching(/^a,(1,2|2,1)$/), 'b,2']);
  const [expiry = 0n] = grants.learned(NOW).find(({ pattern }) => pattern === 'a')?.expiresAtNs ?? [];
  expect(expiry).toBeLessThanOrEqual(NOW + 60n * SECOND);
  expect(expiry).toBeGreaterThan(NOW + 59n * SECOND);
  stage(grants, 0, ['b']);
  grants.activated([0]);
  expect(grants.learned(NOW).map(({ pattern }) => pattern)).toEqual(['b']);
});

test('a sweep of the table of DNS grants (addresses learned for hostname patterns) removes expired grants at once if the table was full, and otherwise one day after the expiry', () => {
  const grants = make(8, 8);
  stage(grants, 1, ['a']);
  grants.activated([1]);
  const grant = (addresses: readonly number[]): number =>
    grants.add([{ pattern: 'a', addresses, expiresAtNs: NOW + SECOND }], NOW);
  grant([1, 2, 3]);
  grants.sweep(NOW + 60n * SECOND);
  expect(grants.addressesOf('ipv4').entries).toBe(3);
  grants.sweep(NOW + 86_500n * SECOND);
  expect(grants.addressesOf('ipv4').entries).toBe(0);
  expect(grant([1, 2, 3, 4, 5, 6, 7, 8, 9])).toBe(1);
  expect(grants.refused).toBe(1);
  grants.sweep(NOW + 60n * SECOND);
  expect([grants.addressesOf('ipv4').entries, grants.isGraceDue]).toEqual([0, true]);
});
