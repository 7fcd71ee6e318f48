import type { ReversePath } from '#dataplane/program/numbers.js';

export type DatapathOptions = {
  /** Names of policed interfaces; one may end in `*`. */
  readonly interfaces: readonly string[];
  readonly nonIpv4: 'drop' | 'pass';
  readonly reversePath: ReversePath;
  /** How long TCP in the middle of its life is picked up after the first activation on a new flow table (D18). */
  readonly pickupMs: number;
  readonly flowCapacity: number;
  /** Addresses that are learned at once. */
  readonly grantCapacity: number;
  /** Its lowest bit is the guard's. */
  readonly markMask: number;
  /** A folder of a BPF file system. */
  readonly pinPath: string;
  /** Lines of 64 bytes in each of the two slots; 524288 by default. */
  readonly slotLines?: number;
  /** Attaches by clsact also where the kernel has TCX. */
  readonly forceClsact?: boolean;
  /** How often `watch` looks; 1000 by default. */
  readonly watchIntervalMs?: number;
  /** The compiled object; `dist/bpf/weir.bpf.o` by default. */
  readonly objectPath?: string;
};

export const DEFAULT_SLOT_LINES = 512 * 1024;

export function matchesInterface(patterns: readonly string[], name: string): boolean {
  return patterns.some((pattern) => (pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern));
}
