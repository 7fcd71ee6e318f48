import { describe, expect, test } from 'vitest';
import { AddressOwners } from '#observe/names/address-owners.js';
import { ownersSince } from './owners.js';

const [A, B, C] = [0x0af4_0107, 0x0af4_0108, 0x0af4_0109] as const;
const named = (owners: AddressOwners) => (address: number, atMs: number) => owners.of(address, atMs)?.name ?? null;

describe('`AddressOwners`', () => {
  test('`AddressOwners` returns the Kubernetes owner that the address had at the time of an event, before and after the address is reused', () => {
    const owners = new AddressOwners();
    const of = named(owners);
    owners.change(ownersSince(0, { [A]: 'old' }, true));
    owners.change(ownersSince(1_000, { [A]: 'new' }));
    owners.change(ownersSince(2_000, { [A]: null }));
    owners.change(ownersSince(3_000, { [A]: 'last' }));
    expect([0, 999, 1_000, 1_999, 2_000, 2_999, 3_000].map((ms) => of(A, ms))).toEqual([
      ...['old', 'old', 'new', 'new', null, null, 'last'],
    ]);
    expect([of(B, 5_000), owners.of(1n, 5_000), owners.of(null, 5_000)]).toEqual([null, null, null]);
  });

  test('`AddressOwners` ends the ownership of addresses that a new list omits, and keeps the start time of ownerships that the list repeats', () => {
    const owners = new AddressOwners();
    const of = named(owners);
    owners.change(ownersSince(0, { [A]: 'a', [B]: 'b' }, true));
    owners.change(ownersSince(1_000, { [A]: 'a', [C]: 'c' }, true));
    expect([of(A, 500), of(A, 1_500)]).toEqual(['a', 'a']);
    expect([of(B, 500), of(B, 1_500)]).toEqual(['b', null]);
    expect([of(C, 500), of(C, 1_500)]).toEqual([null, 'c']);
  });

  test('`AddressOwners` is empty until an address has an owner', () => {
    const owners = new AddressOwners();
    owners.change(ownersSince(0, { [A]: null }, true));
    expect(owners.isEmpty).toBe(true);
    owners.change(ownersSince(0, { [A]: 'a' }));
    expect(owners.isEmpty).toBe(false);
    owners.change(ownersSince(1, { [A]: null }));
    expect(owners.isEmpty).toBe(false);
  });

  test('`AddressOwners` limits the number of addresses, of former addresses, and of former owners of an address', () => {
    const owners = new AddressOwners(1, 1, 2);
    const of = named(owners);
    owners.change(ownersSince(0, { [A]: 'a1', [B]: 'b' }));
    expect([of(A, 0), of(B, 0)]).toEqual(['a1', null]);
    for (const round of [2, 3, 4]) owners.change(ownersSince(round, { [A]: `a${round}` }));
    expect([0, 2, 3, 4].map((ms) => of(A, ms))).toEqual([null, 'a2', 'a3', 'a4']);
    owners.change(ownersSince(5, { [A]: null }));
    owners.change(ownersSince(6, { [B]: 'b' }));
    owners.change(ownersSince(7, { [B]: null }));
    expect([of(A, 4), of(B, 6)]).toEqual([null, 'b']);
  });
});
