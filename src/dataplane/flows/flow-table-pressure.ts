import { FLOW_REFUSALS, type FlowRefusal } from '#contracts/datapath.js';
import { COUNTER_INDEX, DROP_REASON } from '#contracts/datapath-numbers.js';
import { counterReader } from '#dataplane/loader/counters.js';

/**
 * Milliseconds for which a refusal of new flows is reported. The time is longer than the seconds that a
 * refused client waits until its next SYN.
 */
const LASTS_MS = 10_000;

type Seen = { readonly reason: FlowRefusal; packets: bigint; lastMs: number };

/** Finds out from the drop counters whether the flow table refuses new flows, and why. */
export class FlowTablePressure {
  readonly #packets: (reason: FlowRefusal) => bigint;
  readonly #seen: readonly Seen[];

  constructor(countersFd: number) {
    const read = counterReader(countersFd);
    this.#packets = (reason) => read(COUNTER_INDEX.drops + DROP_REASON[reason]).packets;
    // Flows that were refused before the start are not reported, since they belong to another process or to a
    // smaller flow table.
    this.#seen = FLOW_REFUSALS.map((reason) => ({ reason, packets: this.#packets(reason), lastMs: -Infinity }));
  }

  /** Returns the reasons for which flows were refused in the last `LASTS_MS` milliseconds. */
  now(nowMs = performance.now()): readonly FlowRefusal[] {
    for (const seen of this.#seen) {
      const packets = this.#packets(seen.reason);
      if (packets !== seen.packets) seen.lastMs = nowMs;
      seen.packets = packets;
    }
    return this.#seen.filter(({ lastMs }) => nowMs - lastMs < LASTS_MS).map(({ reason }) => reason);
  }
}
