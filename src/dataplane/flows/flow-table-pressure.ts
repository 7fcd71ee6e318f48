import { FLOW_REFUSALS, type FlowRefusal } from '#contracts/datapath.js';
import { COUNTER_INDEX, DROP_REASON } from '#contracts/datapath-numbers.js';
import { counterReader } from '#dataplane/loader/counters.js';

/** A refusal is reported for this time, since a refused client tries again after seconds. */
const LASTS_MS = 10_000;

type Seen = { readonly reason: FlowRefusal; packets: bigint; lastMs: number };

/** Whether the flow table refuses new flows, read from the drop counters. */
export class FlowTablePressure {
  readonly #packets: (reason: FlowRefusal) => bigint;
  readonly #seen: readonly Seen[];

  constructor(countersFd: number) {
    const read = counterReader(countersFd);
    this.#packets = (reason) => read(COUNTER_INDEX.drops + DROP_REASON[reason]).packets;
    // Earlier refusals belong to another process, or to a table that was smaller.
    this.#seen = FLOW_REFUSALS.map((reason) => ({ reason, packets: this.#packets(reason), lastMs: -Infinity }));
  }

  /** The reasons why flows were refused in the last `LASTS_MS`. */
  now(nowMs = performance.now()): readonly FlowRefusal[] {
    for (const seen of this.#seen) {
      const packets = this.#packets(seen.reason);
      if (packets !== seen.packets) seen.lastMs = nowMs;
      seen.packets = packets;
    }
    return this.#seen.filter(({ lastMs }) => nowMs - lastMs < LASTS_MS).map(({ reason }) => reason);
  }
}
