import { FLOW_REFUSALS, type FlowRefusal } from '#contracts/datapath/datapath.js';
import { COUNTER_INDEX, DROP_REASON } from '#contracts/datapath/datapath-numbers.js';
import { counterReader } from '#dataplane/loader/counters.js';

/**
 * Milliseconds for which `now` reports a refusal of new flows. This time is longer than the pause of a
 * refused client before it sends its next SYN, so the report does not flap.
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
    // Do not report flows that the datapath refused before this object was created. These refusals belong to
    // another process or to a smaller flow table.
    this.#seen = FLOW_REFUSALS.map((reason) => ({ reason, packets: this.#packets(reason), lastMs: -Infinity }));
  }

  /** Returns the reasons for which the datapath has refused flows in the last `LASTS_MS` milliseconds. */
  now(nowMs = performance.now()): readonly FlowRefusal[] {
    for (const seen of this.#seen) {
      const packets = this.#packets(seen.reason);
      if (packets !== seen.packets) seen.lastMs = nowMs;
      seen.packets = packets;
    }
    return this.#seen.filter(({ lastMs }) => nowMs - lastMs < LASTS_MS).map(({ reason }) => reason);
  }
}
