import type { Slot } from '#dataplane/abi/active-word.js';
import { REVERT_BYTES, REVERT_OFFSETS, REVERT_REQUEST_BYTES, REVERT_REQUEST_OFFSETS } from '#dataplane/abi/revert.js';
import { libbpf } from '#libc/bpf/libbpf.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { check } from '#libc/libc.js';

/**
 * The deadline of an unconfirmed policy in the kernel. At `atNs`, the kernel puts the slot `slot` in force.
 * `revertedNs`: when it did so; null if it has not. Times are in nanoseconds on the monotonic clock.
 */
export type Deadline = { readonly atNs: bigint; readonly slot: Slot; readonly revertedNs: bigint | null };

/** The BPF timer that ends an unconfirmed policy without a process (`bpf/revert.h`). */
export class RevertTimer {
  readonly #mapFd: number;
  readonly #request = new Uint8Array(REVERT_REQUEST_BYTES);
  readonly #run: TestRun;

  constructor(fds: { readonly map: number; readonly program: number }) {
    this.#mapFd = fds.map;
    this.#run = new TestRun(fds.program, undefined, this.#request, undefined);
  }

  read(): Deadline | null {
    return readDeadline(this.#mapFd);
  }

  /** Sets the deadline. When this method returns, a former deadline changes nothing any more. */
  set(atNs: bigint, slot: Slot): void {
    this.#send(atNs, slot);
  }

  /**
   * Removes the deadline. When this method returns, the kernel does not change the program slot in force any
   * more.
   */
  stop(): void {
    this.#send(0n, 0);
  }

  #send(atNs: bigint, slot: Slot): void {
    const request = new DataView(this.#request.buffer);
    request.setBigUint64(REVERT_REQUEST_OFFSETS.at_ns, atNs, true);
    request.setUint32(REVERT_REQUEST_OFFSETS.slot, slot, true);
    const failed = this.#run.runWithMemory();
    if (failed < 0) throw new KernelFailure('set the deadline of an unconfirmed policy', -failed);
    if (failed !== 0)
      throw new Error(`set the deadline of an unconfirmed policy: the BPF program failed in step ${failed}`);
  }
}

/** Reads the deadline from a map `revert`; null if no policy waits for a confirmation. */
export function readDeadline(mapFd: number): Deadline | null {
  const value = new Uint8Array(REVERT_BYTES);
  check('read revert', libbpf().bpf_map_lookup_elem(mapFd, new Uint8Array(4), value));
  const view = new DataView(value.buffer);
  const atNs = view.getBigUint64(REVERT_OFFSETS.at_ns, true);
  const revertedNs = view.getBigUint64(REVERT_OFFSETS.reverted_ns, true);
  const slot = view.getUint32(REVERT_OFFSETS.slot, true);
  return atNs === 0n ? null : { atNs, slot: slot as Slot, revertedNs: revertedNs === 0n ? null : revertedNs };
}
