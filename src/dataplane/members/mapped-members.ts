import { randomBytes } from 'node:crypto';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { KernelMembers } from './kernel-members.js';
import { MEMBER_LINE, MEMBER_LINES, MEMBER_SET, MEMBER_SETS } from './member-layout.js';

/**
 * The members, in the BPF maps `members` and `member_sets`, which are mapped into the memory of this process.
 */
export type MappedMembers = {
  readonly members: KernelMembers;
  unmap(): void;
};

export function mapMembers(object: BpfObject): MappedMembers {
  const members = new MappedMemory('members', object.mapFd('members'), MEMBER_LINES * MEMBER_LINE.words * 4);
  let sets: MappedMemory;
  try {
    sets = new MappedMemory('member_sets', object.mapFd('member_sets'), MEMBER_SETS * MEMBER_SET.words * 4);
  } catch (failure) {
    members.unmap();
    throw failure;
  }
  const random = new Uint32Array(4);
  randomBytes(random.byteLength).copy(new Uint8Array(random.buffer));
  return {
    members: new KernelMembers({ members: members.words, sets: sets.words }, random, awaitGracePeriod),
    unmap: () => {
      members.unmap();
      sets.unmap();
    },
  };
}
