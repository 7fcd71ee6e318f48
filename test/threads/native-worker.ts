import { libbpf } from '#libc/libbpf.js';
import { addressOf, memoryAt } from '#libc/library.js';
import { ParentThread } from '#threads/parent-thread.js';

export type NativeAsks = { work(): void };

new ParentThread<NativeAsks>('a thread that calls native code').serve({
  work: () => {
    libbpf();
    const bytes = new Uint8Array(64);
    for (;;) memoryAt(addressOf(bytes), bytes.length);
  },
});
