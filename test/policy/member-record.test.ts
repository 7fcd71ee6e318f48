import { describe, expect, test } from 'vitest';
import { DENY_ONLY_MEMBER } from '#contracts/kubernetes/membership.js';
import { MemberRecord } from '#policy/model/sources/member-record.js';

const change = (members: readonly (readonly [address: number, set: number])[], added: readonly number[] = []) => ({
  added: added.map((number) => ({ number, keys: [`${number}`] })),
  addresses: members.map(([address]) => address),
  sets: Uint32Array.from(members, ([, set]) => set),
  dropped: [],
});
const keysOf = (record: MemberRecord, address: number) => record.setOf(address)?.keys;

describe('a record of members', () => {
  test('`MemberRecord` (set of selectors of each Kubernetes address) counts as unknown until it has received all members, and then contains each change', () => {
    const record = new MemberRecord();
    expect(record.isKnown).toBe(false);
    record.replace(change([[7, 1]], [1, 2]));
    record.change(change([[8, 2]]));
    expect([record.isKnown, keysOf(record, 7), keysOf(record, 8)]).toEqual([true, ['1'], ['2']]);
    record.change(change([[7, 0]]));
    expect(record.setOf(7)).toBeUndefined();
    record.change(change([[7, 99]]));
    expect(record.setOf(7)).toBe(DENY_ONLY_MEMBER);
  });

  test('`MemberRecord` (set of selectors of each Kubernetes address) does not list addresses that a new list omits, and lets only deny rules match them until the policy changes', () => {
    const record = new MemberRecord();
    record.replace(
      change(
        [
          [7, 1],
          [8, 1],
          [9, 1],
        ],
        [1],
      ),
    );
    record.replace(change([[8, 1]], [1]));
    expect([record.setOf(7), keysOf(record, 8), record.setOf(9)]).toEqual([DENY_ONLY_MEMBER, ['1'], DENY_ONLY_MEMBER]);
    expect([...record.list().addresses]).toEqual([8]);
    record.change(change([[9, 1]]));
    record.policyChanged();
    expect([record.setOf(7), keysOf(record, 8), keysOf(record, 9)]).toEqual([undefined, ['1'], ['1']]);
    expect([...record.list().addresses].sort()).toEqual([8, 9]);
  });
});
