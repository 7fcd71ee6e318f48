import { randomBytes } from 'node:crypto';
import { Gate } from '#dataplane/grants/gate.js';
import { Grants } from '#dataplane/grants/grants.js';
import { LINE, linesFor, PATTERN, PATTERNS } from '#dataplane/grants/layout.js';
import { MappedMemory } from '#libc/mapped-memory.js';
import { mapShape } from './bpf-fd.js';
import type { BpfObject } from './bpf-object.js';

/** Learned addresses, in the memory of their maps. */
export type MappedGrants = {
  readonly grants: Grants;
  unmap(): void;
};

/** `inForce` is the slot whose names are in use; `gate` is where other writers come in. */
export function mapGrants(
  object: BpfObject,
  capacity: number,
  inForce: 0 | 1 | undefined,
  gate = new Gate(),
): MappedGrants {
  const table = new MappedMemory('grants', object.mapFd('grants'), linesFor(capacity) * LINE.words * 4);
  const patterns = new MappedMemory('patterns', object.mapFd('patterns'), PATTERNS * PATTERN.words * 4);
  const random = new Uint32Array(4);
  randomBytes(random.byteLength).copy(new Uint8Array(random.buffer));
  const grants = new Grants({ grants: table.words, patterns: patterns.words }, { capacity, inForce, random, gate });
  return {
    grants,
    unmap: () => {
      grants.close();
      table.unmap();
      patterns.unmap();
    },
  };
}

/** Learns what another table says by the same numbers of patterns. */
export function learnFrom(fd: number, grants: Grants): void {
  const { maxEntries, valueSize } = mapShape(fd);
  const table = new MappedMemory('grants', fd, maxEntries * valueSize);
  grants.learnFrom(table.words);
  table.unmap();
}
