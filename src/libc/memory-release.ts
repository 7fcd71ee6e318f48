import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { bindLibrary } from './library.js';

/** A parameter of mallopt(3): the size in bytes from which `malloc` maps a block on its own. */
const M_MMAP_THRESHOLD = -3;
const MAPPED_BYTES = 128 * 1024;

const libc = bindLibrary<{
  mallopt(parameter: number, value: number): number;
  malloc_trim(kept: number): number;
}>(null, {
  mallopt: 'int mallopt(int parameter, int value)',
  malloc_trim: 'int malloc_trim(size_t kept)',
});

/**
 * Makes `malloc` map each block of at least 128 KiB on its own, so that `free` returns it to the kernel. By
 * default, glibc raises this threshold up to 32 MiB when a larger block is freed. The blocks of a large
 * policy then leave holes in the heaps of all threads.
 */
export function mapLargeBlocks(): void {
  libc.mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
}

/**
 * Collects the garbage of this thread, and returns the free pages of the C heap to the kernel. Blocks the
 * thread for about 80 ms, or 200 ms with a policy of 100,000 rules in its heap.
 */
export function releaseMemory(): void {
  collectGarbage();
  // The second collection moves objects together, and so frees the pages with few objects that the first
  // one left.
  collectGarbage();
  libc.malloc_trim(0);
}

let gc: (() => void) | undefined;

function collectGarbage(): void {
  if (gc === undefined) {
    // Reset the flag at once: V8 refuses a code cache that was made with other flags.
    setFlagsFromString('--expose-gc');
    gc = runInNewContext('gc') as () => void;
    setFlagsFromString('--no-expose-gc');
  }
  gc();
}
