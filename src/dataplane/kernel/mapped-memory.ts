import koffi from 'koffi';
import { KernelFailure } from './failure.js';
import { libc, memoryAt } from './libc.js';

const PROT_READ_WRITE = 3;
const MAP_SHARED = 1;

/** The memory of an mmapable map. */
export class MappedMemory {
  readonly #address: bigint;
  readonly #length: number;
  readonly words: Uint32Array;

  constructor(name: string, fd: number, bytes: number) {
    this.#length = Math.ceil(bytes / 4096) * 4096;
    this.#address = libc.mmap(null, this.#length, PROT_READ_WRITE, MAP_SHARED, fd, 0);
    if (this.#address === 0xffff_ffff_ffff_ffffn) throw new KernelFailure(`map ${name} into memory`, koffi.errno());
    this.words = new Uint32Array(memoryAt(this.#address, bytes));
  }

  /** Nobody may touch `words` any more. */
  unmap(): void {
    libc.munmap(this.#address, this.#length);
  }
}
