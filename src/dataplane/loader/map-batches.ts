import { constants } from 'node:os';
import { u32At } from '#arrays/read.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import type { MapShape } from './bpf-object.js';

const BATCH = 2_048;
const BATCH_BYTES = 1 << 20;
const { ENOENT, ENOSPC } = constants.errno;

/**
 * `count` entries of a BPF map. The keys follow each other at the beginning of `keys`, and the values at the
 * beginning of `values`. The arrays are valid until the next batch is requested.
 */
export type Batch = { readonly count: number; readonly keys: Uint8Array; readonly values: Uint8Array };

/**
 * Yields the entries of a BPF hash map in batches. No entry is missing that exists during the whole read.
 * Entries that are added or removed during the read may be missing.
 */
export function* batchesOf(fd: number, { keySize, valueSize }: MapShape): Generator<Batch> {
  let size = Math.max(1, Math.min(BATCH, Math.floor(BATCH_BYTES / (keySize + valueSize))));
  let keys = new Uint8Array(size * keySize);
  let values = new Uint8Array(size * valueSize);
  const count = new Uint32Array(1);
  let from: Uint8Array | null = null;
  for (;;) {
    const next = new Uint8Array(keySize);
    count[0] = size;
    const result = libbpf().bpf_map_lookup_batch(fd, from, next, keys, values, count, null);
    if (result === -ENOSPC) {
      // Enlarge the buffer: the kernel returns a hash bucket only as a whole, and the next bucket does not
      // fit.
      size *= 2;
      keys = new Uint8Array(size * keySize);
      values = new Uint8Array(size * valueSize);
      continue;
    }
    if (result < 0 && result !== -ENOENT) throw new KernelFailure('read map', -result);
    yield { count: u32At(count, 0), keys, values };
    if (result < 0) return;
    from = next;
  }
}

export function countEntries(fd: number, shape: MapShape): number {
  let entries = 0;
  for (const { count } of batchesOf(fd, shape)) entries += count;
  return entries;
}
