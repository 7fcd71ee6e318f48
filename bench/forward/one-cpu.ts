import { cpus } from 'node:os';
import koffi from 'koffi';

const MASK_BYTES = 128;
const libc = koffi.load(null);
const getAffinity = libc.func('int sched_getaffinity(int thread, size_t size, _Out_ void *mask)') as Call;
const setAffinity = libc.func('int sched_setaffinity(int thread, size_t size, const void *mask)') as Call;
type Call = (thread: number, size: number, mask: Uint8Array) => number;

/** The CPU that benchmarks are bound to: the last one, since interrupts tend to the first. */
export const BENCH_CPU = cpus().length - 1;

/** Runs `act` with this thread bound to one CPU. */
export function onOneCpu<T>(act: () => T): T {
  const before = new Uint8Array(MASK_BYTES);
  if (getAffinity(0, MASK_BYTES, before) < 0) throw new Error(`sched_getaffinity: errno ${koffi.errno()}`);
  const bound = new Uint8Array(MASK_BYTES);
  bound[BENCH_CPU >> 3] = 1 << (BENCH_CPU & 7);
  if (setAffinity(0, MASK_BYTES, bound) !== 0) throw new Error(`sched_setaffinity: errno ${koffi.errno()}`);
  try {
    return act();
  } finally {
    setAffinity(0, MASK_BYTES, before);
  }
}
