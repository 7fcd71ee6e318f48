import { readFileSync } from 'node:fs';

/** The memory of a process, in MiB. */
export type MemoryParts = {
  readonly resident: number;
  /** The resident memory, with each shared page divided by the number of its processes. */
  readonly proportional: number;
  readonly anonymous: number;
  /** The resident memory by the kind of its mapping, in descending order. */
  readonly kinds: readonly (readonly [kind: string, mib: number])[];
};

/** V8 aligns the pages of its heaps to this size. */
const V8_PAGE_BYTES = 256 * 1024;
/** malloc aligns the heaps of threads to this size. */
const ARENA_BYTES = 64 * 1024 * 1024;

/** Reads the memory of a process with all its threads from `/proc/PID/smaps`. */
export function memoryParts(pid: number): MemoryParts {
  const mappings = readFileSync(`/proc/${pid}/smaps`, 'utf8').split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m);
  const kinds = new Map<string, number>();
  const sums = { resident: 0, proportional: 0, anonymous: 0 };
  for (const mapping of mappings) {
    const mib = (field: string): number =>
      Number(new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(mapping)?.[1] ?? 0) / 1024;
    const kind = kindOf(mapping.slice(0, mapping.indexOf('\n')));
    kinds.set(kind, (kinds.get(kind) ?? 0) + mib('Rss'));
    sums.resident += mib('Rss');
    sums.proportional += mib('Pss');
    sums.anonymous += mib('Anonymous');
  }
  return { ...sums, kinds: [...kinds].sort((a, b) => b[1] - a[1]) };
}

function kindOf(head: string): string {
  const [range = '', permissions = '', , , , ...words] = head.split(/\s+/);
  const name = words.join(' ');
  if (name.includes('bpf-map')) return 'BPF maps';
  if (name.includes('librocksdb')) return 'librocksdb';
  if (name.endsWith('/node')) return 'node';
  if (name === '[heap]') return 'malloc';
  if (name !== '') return 'other files and stacks';
  const [start = 0, end = 0] = range.split('-').map((address) => Number.parseInt(address, 16));
  if (permissions.includes('x')) return 'machine code';
  if (start % ARENA_BYTES === 0) return 'malloc';
  if (start % V8_PAGE_BYTES === 0 && (end - start) % V8_PAGE_BYTES === 0) return 'V8 heaps';
  // Thread stacks, blocks that malloc maps on their own, and large objects of V8.
  return 'large blocks';
}
