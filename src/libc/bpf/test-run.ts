import { constants } from 'node:os';
import { KernelFailure } from '#libc/kernel-failure.js';
import { check } from '#libc/libc.js';
import { addressOf } from '#libc/library.js';
import { libbpf } from './libbpf.js';

// The offsets of the fields of `struct bpf_test_run_opts` and its size, in bytes.
const AT = {
  dataIn: 8,
  dataOut: 16,
  dataSizeIn: 24,
  dataSizeOut: 28,
  contextIn: 32,
  contextOut: 40,
  contextSizeIn: 48,
  contextSizeOut: 52,
  returned: 56,
  repeat: 60,
  duration: 64,
  bytes: 80,
} as const;

const MEMORY_WAIT_MS = 2_000;

/**
 * Runs a loaded BPF program with `BPF_PROG_TEST_RUN`. A BPF program of type `tc` needs a frame; a BPF program
 * of type `syscall` needs only a context.
 */
export class TestRun {
  readonly #options = new Uint8Array(AT.bytes);
  readonly #view = new DataView(this.#options.buffer);

  constructor(
    readonly programFd: number,
    readonly frame: Uint8Array | undefined,
    readonly context: Uint8Array | undefined,
    readonly contextOut: Uint8Array | undefined,
    /** The buffer that receives the frame as the BPF program left it. */
    readonly frameOut?: Uint8Array,
  ) {
    this.#view.setBigUint64(0, BigInt(AT.bytes), true);
    if (frame !== undefined) this.#view.setBigUint64(AT.dataIn, addressOf(frame), true);
    if (frameOut !== undefined) this.#view.setBigUint64(AT.dataOut, addressOf(frameOut), true);
    if (context !== undefined) this.#view.setBigUint64(AT.contextIn, addressOf(context), true);
    if (contextOut !== undefined) this.#view.setBigUint64(AT.contextOut, addressOf(contextOut), true);
  }

  /** Runs the BPF program on the first `frameLength` bytes of the frame. Returns its return value. */
  run(frameLength = this.frame?.length ?? 0, repeat = this.frame === undefined ? 0 : 1): number {
    this.#prepare(frameLength, repeat);
    check('run program', libbpf().bpf_prog_test_run_opts(this.programFd, this.#options));
    return this.#view.getInt32(AT.returned, true);
  }

  /**
   * Like `run`, for a BPF program that initialises a timer and returns a negative error number. The kernel
   * allocates the memory of a timer without waiting, so on a busy machine the allocation may fail for a
   * moment: repeats the run for up to `MEMORY_WAIT_MS`.
   */
  runWithMemory(): number {
    const until = performance.now() + MEMORY_WAIT_MS;
    for (;;) {
      const returned = this.run();
      if (returned !== -constants.errno.ENOMEM || performance.now() >= until) return returned;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }

  /** The average duration of one repetition in the last run, in nanoseconds. */
  get durationNs(): number {
    return this.#view.getUint32(AT.duration, true);
  }

  /** Like `run`, but in koffi's thread pool. Do not use this object before the promise settles. */
  runBeside(frameLength: number, repeat: number): Promise<number> {
    this.#prepare(frameLength, repeat);
    return new Promise((resolve, reject) => {
      libbpf().bpf_prog_test_run_opts.async(this.programFd, this.#options, (error, result) => {
        if (error === null && result >= 0) resolve(this.#view.getInt32(AT.returned, true));
        else reject(error ?? new KernelFailure('run program', -result));
      });
    });
  }

  #prepare(frameLength: number, repeat: number): void {
    this.#view.setUint32(AT.dataSizeIn, frameLength, true);
    // Set the sizes for each run: the kernel overwrites them with the sizes of its output, and a smaller size
    // would truncate the next output.
    this.#view.setUint32(AT.dataSizeOut, this.frameOut?.length ?? 0, true);
    this.#view.setUint32(AT.contextSizeIn, this.context?.length ?? 0, true);
    this.#view.setUint32(AT.contextSizeOut, this.contextOut?.length ?? 0, true);
    this.#view.setUint32(AT.repeat, repeat, true);
  }
}
