import { beforeEach, expect, test } from 'vitest';
import type { MembershipChange, SelectorSet } from '#contracts/kubernetes/membership.js';
import { homeOf } from '#dataplane/grants/address-hash.js';
import { KernelMembers } from '#dataplane/members/kernel-members.js';
import {
  DENY_ONLY_SET,
  MEMBER_LAYOUTS,
  MEMBER_LINE,
  MEMBER_SET,
  MEMBER_SETS,
  memberLines,
} from '#dataplane/members/member-layout.js';
import { MemberTable } from '#dataplane/members/member-table.js';
import { ProgressClock } from '#test/progress-clock.js';
import { Random, seedOf } from '#test/seed.js';

const FIRST = 0x0a00_0000;
const RANDOM = Uint32Array.of(0x9e37_79b9, 0x7f4a_7c15, 0x85eb_ca6b, 0xc2b2_ae35);

let words: Uint32Array;
let members: KernelMembers;
beforeEach(() => {
  words = new Uint32Array(new SharedArrayBuffer(memberLines('ipv4') * MEMBER_LINE.words * 4));
  const sets = new Uint32Array(new SharedArrayBuffer(MEMBER_SETS * MEMBER_SET.words * 4));
  members = new KernelMembers({ members: new Map([['ipv4', words]]), sets }, RANDOM, () => {});
});

const setOf = (number: number): SelectorSet => ({ number, keys: [`app=a${number}`] });
const change = (given: readonly (readonly [address: number, set: number])[], added: readonly SelectorSet[] = []) =>
  ({
    added,
    addresses: given.map(([address]) => address),
    sets: Uint32Array.from(given, ([, set]) => set),
    dropped: [],
  }) satisfies MembershipChange;
/** Returns the map index of the set of an address as the BPF programs read it. */
const mapIndexAt = (address: number): number => new MemberTable('ipv4', words, RANDOM, () => {}).mapIndexAt(address);

test('in the full table of Kubernetes members, a set of source groups without an entry gets one when the last address leaves another set', () => {
  const sets = Array.from({ length: MEMBER_SETS + 1 }, (_, at) => setOf(at + 1));
  // Entry 0 of the map is reserved, so the map has no entry for the last two of these sets.
  members.change(
    change(
      sets.map(({ number }) => [FIRST + number, number] as const),
      sets,
    ),
  );
  const late = FIRST + MEMBER_SETS;
  members.change(change([[FIRST, MEMBER_SETS]]));
  expect([FIRST, late, late + 1].map(mapIndexAt)).toEqual([DENY_ONLY_SET, DENY_ONLY_SET, DENY_ONLY_SET]);
  const changed = members.change(change([[FIRST + 1, 0]]));
  expect([...changed].sort()).toEqual([FIRST, FIRST + 1, late]);
  expect(mapIndexAt(late)).toBe(mapIndexAt(FIRST));
  expect(mapIndexAt(late)).not.toBe(DENY_ONLY_SET);
  expect(mapIndexAt(late + 1)).toBe(DENY_ONLY_SET);
  members.change(
    change([
      [late + 1, 0],
      [FIRST + 2, 0],
    ]),
  );
  expect(mapIndexAt(late + 1)).toBe(0);
  members.change(change([[FIRST + 2, MEMBER_SETS + 1]]));
  expect(mapIndexAt(FIRST + 2)).not.toBe(DENY_ONLY_SET);
});

test('a change of Kubernetes members takes as long with many addresses that the full member table refused as with none', () => {
  const set = setOf(1);
  const crowd = Array.from({ length: 450_000 }, (_, at) => [FIRST + at, 1] as const);
  members.change(change(crowd, [set]));
  expect(members.refused).toBeGreaterThan(150_000);
  const clock = new ProgressClock();
  for (let turn = 0; turn < 200; turn++) members.change(change([[FIRST - 1 - turn, turn % 2]]));
  const tookMs = clock.ms();
  console.log(`200 changes with ${members.refused} refused addresses: ${tookMs.toFixed(1)} ms`);
  expect(tookMs).toBeLessThan(500);
});

test('no Kubernetes member stays refused by the member table while a cache line near its hash position has room', () => {
  const random = new Random(seedOf(20_261_129));
  const crowd = Array.from({ length: 400_000 }, (_, at) => FIRST + at);
  members.change(
    change(
      crowd.map((address) => [address, 1] as const),
      [setOf(1)],
    ),
  );
  const left = new Set<number>();
  for (let turn = 0; turn < 40; turn++) {
    const leaving = Array.from({ length: random.below(500) }, () => random.pick(crowd));
    for (const address of leaving) left.add(address);
    members.change(change(leaving.map((address) => [address, 0] as const)));
  }
  const read = new MemberTable('ipv4', words, RANDOM, () => {});
  const refused = crowd.filter((address) => !left.has(address) && read.mapIndexAt(address) === 0);
  expect(refused.length).toBe(members.refused);
  expect(refused.length).toBeGreaterThan(100_000);
  expect([...left].filter((address) => read.mapIndexAt(address) !== 0)).toEqual([]);
  const isFull = (line: number): boolean =>
    Array.from({ length: MEMBER_LAYOUTS.ipv4.places }, (_, at) => line * MEMBER_LINE.words + 2 + 2 * at).every(
      (at) => words[at + 1] !== 0,
    );
  const full = Uint8Array.from({ length: memberLines('ipv4') }, (_, line) => Number(line > 0 && isFull(line)));
  const withRoom = refused.filter((address) => {
    const home = homeOf(words, address);
    return full.subarray(home, home + MEMBER_LAYOUTS.ipv4.probes).includes(0);
  });
  expect(withRoom).toEqual([]);
});
