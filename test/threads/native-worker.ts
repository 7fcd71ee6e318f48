import { libbpf } from '#libc/bpf/libbpf.js';
import { libc } from '#libc/libc.js';
import { addressOf, memoryAt } from '#libc/library.js';
import { guarded } from '#libc/termination-guard.js';
import { WorkerServer } from '#threads/worker-server.js';

export type NativeAsks = {
  work(): void;
  /**
   * Sets the first number to 1, and 200 ms later the second number, inside one call of `guarded`. Then it
   * loops forever.
   */
  whole(both: Int32Array): void;
};

const SOME_TIME_MS = 200;

new WorkerServer<NativeAsks>('a thread that calls native code').serve({
  work: () => {
    libbpf();
    const bytes = new Uint8Array(64);
    for (;;) {
      memoryAt(addressOf(bytes), bytes.length);
      // This call is not inside `guarded`, like any direct call of a bound C function. It returns a pointer,
      // for which koffi creates a JavaScript value.
      libc.mmap(null, bytes.length, 0, 0, -1, 0);
    }
  },
  whole: (both) => {
    guarded(() => {
      Atomics.store(both, 0, 1);
      for (const until = performance.now() + SOME_TIME_MS; performance.now() < until; );
      Atomics.store(both, 1, 1);
    });
    for (;;);
  },
});
