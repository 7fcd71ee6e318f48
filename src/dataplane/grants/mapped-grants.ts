import { randomBytes } from 'node:crypto';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { LINE, linesFor, PATTERN, PATTERNS } from './grant-layout.js';
import { Grants } from './grants.js';

/**
 * The learned addresses, in the BPF maps `grants` and `patterns`, which are mapped into the memory of this
 * process.
 */
export type MappedGrants = {
  readonly grants: Grants;
  unmap(): void;
};

export type GrantOptions = {
  readonly capacity: number;
  /**
   * The slot of the program that this process adopted, whose patterns keep their numbers; undefined if it
   * adopted none.
   */
  readonly inForce: 0 | 1 | undefined;
  /**
   * True if an earlier process created the maps. BPF programs may still be reading places that the earlier
   * process freed, so a grace period must pass before such a place is reused.
   */
  readonly isAdopted: boolean;
};

export function mapGrants(object: BpfObject, { isAdopted, ...options }: GrantOptions): MappedGrants {
  const mapped: MappedMemory[] = [];
  const map = (name: 'grants' | 'patterns', bytes: number): Uint32Array => {
    const memory = new MappedMemory(name, object.mapFd(name), bytes);
    mapped.push(memory);
    return memory.words;
  };
  const unmap = (): void => {
    for (const memory of mapped) memory.unmap();
  };
  try {
    const table = map('grants', linesFor(options.capacity) * LINE.words * 4);
    const patterns = map('patterns', PATTERNS * PATTERN.words * 4);
    if (isAdopted) awaitGracePeriod();
    const random = new Uint32Array(4);
    randomBytes(random.byteLength).copy(new Uint8Array(random.buffer));
    return { grants: new Grants({ grants: table, patterns }, { ...options, random }), unmap };
  } catch (failure) {
    unmap();
    throw failure;
  }
}

/**
 * Copies all grants from the map `grants` behind the file descriptor `fd`. That map must use the same
 * pattern numbers as `grants`.
 */
export function learnFrom(fd: number, grants: Grants): void {
  const { maxEntries, valueSize } = mapShape(fd);
  const table = new MappedMemory('grants', fd, maxEntries * valueSize);
  grants.learnFrom(table.words);
  table.unmap();
}
