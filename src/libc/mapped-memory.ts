import { KernelFailure } from './kernel-failure.js';
import { errno, libc } from './libc.js';
import { memoryAt } from './library.js';

const PROT_READ = 1;
const PROT_WRITE = 2;
const MAP_SHARED = 1;

export const PAGE_BYTES = libc.getpagesize();

export type MappingOptions = { readonly offset?: number; readonly readOnly?: boolean };

/** Memory shared with the kernel: a memory-mapped BPF map, or a section of a ring buffer. */
export class MappedMemory {
  readonly #address: bigint;
  readonly #length: number;
  /** The mapped memory. If the mapping is read-only, a write to this buffer ends the process by SIGSEGV. */
  readonly buffer: ArrayBuffer;
  readonly words: Uint32Array;

  /**
   * Maps `bytes` bytes of the descriptor `fd` from `offset` on. `offset` must be a multiple of `PAGE_BYTES`.
   */
  constructor(name: string, fd: number, bytes: number, { offset = 0, readOnly = false }: MappingOptions = {}) {
    this.#length = Math.ceil(bytes / PAGE_BYTES) * PAGE_BYTES;
    const protection = readOnly ? PROT_READ : PROT_READ | PROT_WRITE;
    this.#address = libc.mmap(null, this.#length, protection, MAP_SHARED, fd, offset);
    if (this.#address === 0xffff_ffff_ffff_ffffn) throw new KernelFailure(`map ${name} into memory`, errno());
    this.buffer = memoryAt(this.#address, bytes);
    this.words = new Uint32Array(this.buffer);
  }

  /** Unmaps the memory. A later access to `buffer` or `words` ends the process by SIGSEGV. */
  unmap(): void {
    libc.munmap(this.#address, this.#length);
  }
}
