import { VITALS_BYTES, VITALS_OFFSETS } from '#dataplane/abi/hit.js';
import { TestRun } from '#libc/bpf/test-run.js';
import { MappedMemory } from '#libc/mapped-memory.js';

/**
 * `refresh` starts a sweep (a walk over the whole flow table in the kernel) only if this many times the
 * duration of the last sweep has passed since that sweep. So sweeps for statistics use at most a tenth of one
 * CPU.
 */
const SWEEP_SHARE = 10n;

/**
 * Reads the results of the last sweep of the flow table, and starts a sweep on request. A sweep ends expired
 * flows and flushes the counters of the other flows.
 */
export class FlowSweep {
  readonly #memory: MappedMemory;
  readonly #wide: BigUint64Array;
  readonly #sweep: TestRun;

  constructor(fds: { readonly vitals: number; readonly sweep: number }) {
    this.#memory = new MappedMemory('vitals', fds.vitals, VITALS_BYTES);
    this.#wide = new BigUint64Array(this.#memory.words.buffer);
    this.#sweep = new TestRun(fds.sweep, undefined, undefined, undefined);
  }

  get flows(): number {
    return this.#memory.words[VITALS_OFFSETS.flows / 4] ?? 0;
  }

  get halfOpen(): number {
    return this.#memory.words[VITALS_OFFSETS.half_open / 4] ?? 0;
  }

  get lastSweep(): { readonly agoMs: number; readonly tookMs: number } {
    const { swept, took } = this.#times();
    return { agoMs: Number(process.hrtime.bigint() - swept) / 1e6, tookMs: Number(took) / 1e6 };
  }

  /**
   * Sweeps the flow table in the kernel. Afterwards the hits of each rule also include the packets that only
   * the flows had counted before.
   */
  sweep(): void {
    this.#sweep.run();
  }

  /** Sweeps if the last sweep (walk over the flow table) is long enough ago (`SWEEP_SHARE`). */
  refresh(): void {
    const { swept, took } = this.#times();
    if (process.hrtime.bigint() - swept >= took * SWEEP_SHARE) this.sweep();
  }

  #times(): { readonly swept: bigint; readonly took: bigint } {
    const [swept = 0n, took = 0n] = [VITALS_OFFSETS.swept_ns, VITALS_OFFSETS.sweep_took_ns].map(
      (at) => this.#wide[at / 8],
    );
    return { swept, took };
  }

  unmap(): void {
    this.#memory.unmap();
  }
}
