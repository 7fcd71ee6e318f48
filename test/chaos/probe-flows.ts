import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { built } from '#threads/built-file.js';

/** The UDP ports of the probes: bit N of a code is the verdict for port `FIRST_PROBE_PORT` + N. */
export const FIRST_PROBE_PORT = 7_000;
export const PROBE_PORTS = 12;

/** A node to probe, with the network namespaces before and behind it. */
export type ProbeInput = { readonly node: string; readonly client: string; readonly server: string };

/**
 * The verdicts of a node for one datagram to each probe port. The datagrams were sent in the order of their
 * ports between `from` and `to`, in ms of `performance.now()`. Bit N of `allowed` is 1 if the server received
 * the datagram to port N.
 */
export type ProbeTick = {
  readonly node: string;
  readonly from: number;
  readonly to: number;
  readonly allowed: number;
};

/** A clock that all threads share, in ms. */
export function clockMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** Permanent UDP flows through nodes: one flow for each probe port and node, see `probe-worker.ts`. */
export class ProbeFlows {
  readonly #worker: Worker;
  readonly #failed: Promise<never>;

  private constructor(inputs: readonly ProbeInput[]) {
    this.#worker = new Worker(built('test/chaos/probe-worker.js'), { workerData: inputs, execArgv: [] });
    this.#failed = once(this.#worker, 'error').then(([failure]) => {
      throw failure as Error;
    });
    this.#failed.catch(() => {});
  }

  static async start(inputs: readonly ProbeInput[]): Promise<ProbeFlows> {
    const flows = new ProbeFlows(inputs);
    await flows.#message();
    return flows;
  }

  /** Ends the flows. Returns the verdicts (ticks) of all nodes, in the order of their times for each node. */
  async end(): Promise<ProbeTick[]> {
    const received = this.#message();
    this.#worker.postMessage('end');
    const ticks = (await received) as ProbeTick[];
    const offset = clockMs() - performance.now();
    return ticks.map((tick) => ({ ...tick, from: tick.from - offset, to: tick.to - offset }));
  }

  /** Ends the flows without a result. */
  async close(): Promise<void> {
    await this.#worker.terminate();
  }

  async #message(): Promise<unknown> {
    const [message] = await Promise.race([once(this.#worker, 'message'), this.#failed]);
    return message;
  }
}
