import { KernelFailure } from './kernel-failure.js';
import { libbpf } from './libbpf.js';
import { check } from './libc.js';
import { addressOf } from './library.js';

// struct bpf_test_run_opts
const SIZE = 80;
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
} as const;

/** Runs a loaded program once with its own buffers: a frame for `tc`, none for `syscall`, and a context. */
export class TestRun {
  readonly #options = new Uint8Array(SIZE);
  readonly #view = new DataView(this.#options.buffer);

  constructor(
    readonly programFd: number,
    readonly frame: Uint8Array | undefined,
    readonly context: Uint8Array | undefined,
    readonly contextOut: Uint8Array | undefined,
    /** Receives the frame as the program left it. */
    readonly frameOut?: Uint8Array,
  ) {
    this.#view.setBigUint64(0, BigInt(SIZE), true);
    if (frame !== undefined) this.#view.setBigUint64(AT.dataIn, addressOf(frame), true);
    if (frameOut !== undefined) this.#view.setBigUint64(AT.dataOut, addressOf(frameOut), true);
    if (context !== undefined) this.#view.setBigUint64(AT.contextIn, addressOf(context), true);
    if (contextOut !== undefined) this.#view.setBigUint64(AT.contextOut, addressOf(contextOut), true);
  }

  /** Returns the program's return value. `frameLength` bytes of the frame are the packet. */
  run(frameLength = this.frame?.length ?? 0, repeat = this.frame === undefined ? 0 : 1): number {
    this.#prepare(frameLength, repeat);
    check('run program', libbpf().bpf_prog_test_run_opts(this.programFd, this.#options));
    return this.#view.getInt32(AT.returned, true);
  }

  /** Nanoseconds for each repetition of the last run. */
  get durationNs(): number {
    return this.#view.getUint32(AT.duration, true);
  }

  /** Like `run`, on a thread of the pool. The object must not be used before the promise settles. */
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
    // Set again for each run, because the kernel overwrites the sizes, and a smaller one would limit the next
    // run.
    this.#view.setUint32(AT.dataSizeOut, this.frameOut?.length ?? 0, true);
    this.#view.setUint32(AT.contextSizeIn, this.context?.length ?? 0, true);
    this.#view.setUint32(AT.contextSizeOut, this.contextOut?.length ?? 0, true);
    this.#view.setUint32(AT.repeat, repeat, true);
  }
}
