import { cpus } from 'node:os';
import { check } from '#libc/libc.js';
import { bindLibrary } from '#libc/library.js';

const MASK_BYTES = 128;
type Scheduling = {
  sched_getaffinity(thread: number, size: number, mask: Uint8Array): number;
  sched_setaffinity(thread: number, size: number, mask: Uint8Array): number;
};
const scheduling = bindLibrary<Scheduling>(null, {
  sched_getaffinity: 'int sched_getaffinity(int thread, size_t size, _Out_ void *mask)',
  sched_setaffinity: 'int sched_setaffinity(int thread, size_t size, const void *mask)',
});

/** The CPU that runs the benchmarks: the last CPU, because the first usually handles the interrupts. */
export const BENCH_CPU = cpus().length - 1;

/** Calls `act` while this thread is bound to `BENCH_CPU`. */
export function onOneCpu<T>(act: () => T): T {
  const before = new Uint8Array(MASK_BYTES);
  check('read the affinity', scheduling.sched_getaffinity(0, MASK_BYTES, before));
  const bound = new Uint8Array(MASK_BYTES);
  bound[BENCH_CPU >> 3] = 1 << (BENCH_CPU & 7);
  check('set the affinity', scheduling.sched_setaffinity(0, MASK_BYTES, bound));
  try {
    return act();
  } finally {
    scheduling.sched_setaffinity(0, MASK_BYTES, before);
  }
}
