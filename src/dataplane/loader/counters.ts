import type { Counter } from '#contracts/datapath/datapath.js';
import { COUNTERS } from '#contracts/datapath/datapath-numbers.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { check } from '#libc/libc.js';
import { mapShape } from './bpf-fd.js';

const COUNTER_BYTES = 16;

/**
 * Returns a function that reads one counter of the per-CPU map `counters` and returns its sum over all CPUs.
 * The index is that of `enum counter_index` in `bpf/weir.h`.
 */
export function counterReader(fd: number): (index: number) => Counter {
  const cpus = check('count CPUs', libbpf().libbpf_num_possible_cpus());
  const key = new Uint32Array(1);
  const value = new BigUint64Array((cpus * COUNTER_BYTES) / 8);
  const keyBytes = new Uint8Array(key.buffer);
  const valueBytes = new Uint8Array(value.buffer);
  return (index) => {
    key[0] = index;
    check('read counters', libbpf().bpf_map_lookup_elem(fd, keyBytes, valueBytes));
    let packets = 0n;
    let bytes = 0n;
    for (let cpu = 0; cpu < cpus; cpu++) {
      packets += value[cpu * 2] ?? 0n;
      bytes += value[cpu * 2 + 1] ?? 0n;
    }
    return { packets, bytes };
  };
}

export function readCounters(fd: number): Counter[] {
  const read = counterReader(fd);
  // A map that a build with another layout version created may have fewer counters.
  const count = Math.min(COUNTERS, mapShape(fd).maxEntries);
  return Array.from({ length: count }, (_, index) => read(index));
}
