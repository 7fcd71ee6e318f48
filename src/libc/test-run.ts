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

/** Runs a loaded program once over its own buffers: a frame for `tc`, nothing for `syscall`, and a context. */
export class TestRun {
  readonly #options = new Uint8Array(SIZE);
  readonly #view = new DataView(this.#options.buffer);

  constructor(
    readonly programFd: number,
    readonly frame: Uint8Array | undefined,
    readonly context: Uint8Array | undefined,
    readonly contextOut: Uint8Array | undefined,
    /** Where the frame is left as the program made it. */
    readonly frameOut?: Uint8Array,
  ) {
    this.#view.setBigUint64(0, BigInt(SIZE), true);
    if (frame !== undefined) this.#view.setBigUint64(AT.dataIn, addressOf(frame), true);
    if (frameOut !== undefined) this.#view.setBigUint64(AT.dataOut, addressOf(frameOut), true);
    if (context !== undefined) this.#view.setBigUint64(AT.contextIn, addressOf(context), true);
    if (contextOut !== undefined) this.#view.setBigUint64(AT.contextOut, addressOf(contextOut), true);
  }

  /** Answers what the program returned. `frameLength` bytes of the frame are the packet. */
  run(frameLength = this.frame?.length ?? 0, repeat = this.frame === undefined ? 0 : 1): number {
    this.#prepare(frameLength, repeat);
    check('run program', libbpf().bpf_prog_test_run_opts(this.programFd, this.#options));
    return this.#view.getInt32(AT.returned, true);
  }

  /** Of the last run: nanoseconds for each repetition. */
  get durationNs(): number {
    return this.#view.getUint32(AT.duration, true);
  }

  /** Like `run`, on a thread of the pool. Nothing else may use this object until it is done. */
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
    // Each run leaves the size that it found here, and would be limited to the last one.
    this.#view.setUint32(AT.dataSizeOut, this.frameOut?.length ?? 0, true);
    this.#view.setUint32(AT.contextSizeIn, this.context?.length ?? 0, true);
    this.#view.setUint32(AT.contextSizeOut, this.contextOut?.length ?? 0, true);
    this.#view.setUint32(AT.repeat, repeat, true);
  }
}
