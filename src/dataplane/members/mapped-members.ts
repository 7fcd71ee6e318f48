import { randomBytes } from 'node:crypto';
import { SLOT_COUNT } from '#dataplane/abi/active-word.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { KernelMembers } from './kernel-members.js';
import { MEMBER_LINE, MEMBER_LINES, MEMBER_SET, MEMBER_SETS, THIRD_WORDS } from './member-layout.js';

/**
 * The members, in the BPF maps `members` and `member_sets`, which are mapped into the memory of this process.
 */
export type MappedMembers = {
  readonly members: KernelMembers;
  /** Switches to another BPF object whose maps `members` and `member_sets` are the same maps. */
  passTo(object: Pick<BpfObject, 'mapFd'>, slotCount: number): void;
  unmap(): void;
};

export function mapMembers(object: Pick<BpfObject, 'mapFd'>, slotCount: number): MappedMembers {
  const memory: MappedMemory[] = [];
  const map = (name: 'members' | 'member_sets', bytes: number): Uint32Array => {
    const mapped = new MappedMemory(name, object.mapFd(name), bytes);
    memory.push(mapped);
    return mapped.words;
  };
  try {
    const members = map('members', MEMBER_LINES * MEMBER_LINE.words * 4);
    const sets = map('member_sets', MEMBER_SETS * MEMBER_SET.words * 4);
    let third = mapThird(object, slotCount);
    const random = new Uint32Array(4);
    randomBytes(random.byteLength).copy(new Uint8Array(random.buffer));
    const kernelMembers = new KernelMembers({ members, sets, thirdIndexes: third?.words }, random, awaitGracePeriod);
    return {
      members: kernelMembers,
      passTo: (next, count) => {
        const before = third;
        third = mapThird(next, count);
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
function mapThird(object: Pick<BpfObject, 'mapFd'>, slotCount: number): MappedMemory | undefined {
  if (slotCount === SLOT_COUNT.usual) return undefined;
  return new MappedMemory('third_indexes', object.mapFd('third_indexes'), MEMBER_SETS * THIRD_WORDS * 4);
}
