import { randomBytes } from 'node:crypto';
import type { Family } from '#contracts/policy/policy-model.js';
import { SLOT_COUNT } from '#dataplane/abi/active-word.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { KernelMembers } from './kernel-members.js';
import { MEMBER_LAYOUTS, MEMBER_LINE, MEMBER_SET, MEMBER_SETS, memberLines, THIRD_WORDS } from './member-layout.js';

type Maps = Pick<BpfObject, 'mapFd'>;
/** The BPF objects with the maps; `ipv6` is null if no IPv6 is enforced. Both share `member_sets`. */
export type MemberObjects = { readonly ipv4: Maps; readonly ipv6: Maps | null };

/**
 * The members, in the BPF map `members` of each family and in `member_sets`, which are mapped into the memory
 * of this process.
 */
export type MappedMembers = {
  readonly members: KernelMembers;
  /** Switches to other BPF objects whose maps `members` and `member_sets` are the same maps. */
  passTo(objects: MemberObjects, slotCount: number): void;
  unmap(): void;
};

export function mapMembers({ ipv4, ipv6 }: MemberObjects, slotCount: number): MappedMembers {
  const memory: MappedMemory[] = [];
  const map = (object: Maps, name: 'members' | 'member_sets', bytes: number): Uint32Array => {
    const mapped = new MappedMemory(name, object.mapFd(name), bytes);
    memory.push(mapped);
    return mapped.words;
  };
  try {
    const members = new Map<Family, Uint32Array>();
    for (const [family, object] of [
      ['ipv4', ipv4],
      ['ipv6', ipv6],
    ] as const)
      if (object !== null) members.set(family, map(object, 'members', memberLines(family) * MEMBER_LINE.words * 4));
    const sets = map(ipv4, 'member_sets', MEMBER_SETS * MEMBER_SET.words * 4);
    let third = mapThird(ipv4, slotCount);
    const random = new Uint32Array(MEMBER_LAYOUTS.ipv6.randomWords);
    randomBytes(random.byteLength).copy(new Uint8Array(random.buffer));
    const kernelMembers = new KernelMembers({ members, sets, thirdIndexes: third?.words }, random, awaitGracePeriod);
    return {
      members: kernelMembers,
      passTo: (next, count) => {
        const before = third;
        third = mapThird(next.ipv4, count);
        kernelMembers.useThirdIndexes(third?.words);
        before?.unmap();
      },
      unmap: () => {
        for (const each of memory) each.unmap();
        third?.unmap();
      },
    };
  } catch (failure) {
    for (const each of memory) each.unmap();
    throw failure;
  }
}

/**
 * Maps `third_indexes` (the entries for program slot 2) into memory; undefined while the datapath has only
 * two program slots.
 */
function mapThird(object: Maps, slotCount: number): MappedMemory | undefined {
  if (slotCount === SLOT_COUNT.usual) return undefined;
  return new MappedMemory('third_indexes', object.mapFd('third_indexes'), MEMBER_SETS * THIRD_WORDS * 4);
}
