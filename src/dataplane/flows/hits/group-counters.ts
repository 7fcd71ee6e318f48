import { largest } from '#arrays/extremes.js';
import { itemAt, u8At, u32At } from '#arrays/read.js';
import { textAt } from '#arrays/texts.js';
import { COUNTED_VERDICTS, GROUP_COUNTS, type GroupTraffic } from '#contracts/datapath/datapath.js';
import type { StagedRuleNames } from '#contracts/datapath/event-source.js';
import { NONE } from '#contracts/policy/program.js';
import { VERDICT_NUMBER } from '#contracts/policy/verdict-word.js';
import type { Hits } from './hits.js';

/**
 * Number of a verdict → index of its packet count in a row of counts. The byte count is at the next index.
 */
const COLUMN_OF: readonly number[] = Array.from(
  { length: 1 + largest(Object.values(VERDICT_NUMBER)) },
  (_, number) => 2 * COUNTED_VERDICTS.findIndex((verdict) => VERDICT_NUMBER[verdict] === number),
);

/**
 * Counts packets and bytes by source group. The hits of a rule can vanish with the rule, but a counter of
 * Prometheus must not decrease. So each `collect` adds the hits since the last `collect` to the row of the
 * group, and no row decreases.
 *
 * At most `limit` groups have a row of their own. A group keeps its row while it is in the policy in force.
 * Free rows go to further groups in the order of evaluation. All groups without a row share one row.
 */
export class GroupCounters {
  readonly #limit: number;
  #rows = new Map<string, Float64Array>();
  readonly #others = new Float64Array(GROUP_COUNTS);
  readonly #policyDefault = new Float64Array(GROUP_COUNTS);
  /** The policy in force, and for each of its groups the row of counts. */
  #inForce: StagedRuleNames | undefined;
  #rowOfGroup: readonly Float64Array[] = [];
  /**
   * The content of the map `hits` at the last `collect`: low half of the rule's identity, packets and bytes.
   */
  #checks = new Uint32Array(0);
  #packets = new Float64Array(0);
  #bytes = new Float64Array(0);

  constructor(limit: number) {
    this.#limit = limit;
  }

  /**
   * Makes the next `collect` count only what a map `hits` counts from now on. The counts of the groups stay.
   */
  follow(hits: Hits): void {
    // Forget the policy in force: its entries are indexes of the map that was followed before.
    this.#inForce = undefined;
    this.#checks = new Uint32Array(hits.capacity);
    this.#packets = new Float64Array(hits.capacity);
    this.#bytes = new Float64Array(hits.capacity);
    for (let entry = 1; entry < hits.capacity; entry++) {
      this.#checks[entry] = hits.check(entry);
      this.#packets[entry] = Number(hits.packets(entry));
      this.#bytes[entry] = Number(hits.bytes(entry));
    }
  }

  /**
   * Assigns rows of counters to the groups of the policy in force, and adds to the rows the hits since the
   * last call.
   */
  collect(hits: Hits, inForce: StagedRuleNames): void {
    if (this.#inForce !== inForce) {
      if (this.#inForce !== undefined) this.#add(hits, this.#inForce);
      this.#assign(inForce);
    }
    this.#add(hits, inForce);
  }

  traffic(): GroupTraffic {
    const rows = [...this.#rows.values(), this.#others, this.#policyDefault];
    const counts = new Float64Array(rows.length * GROUP_COUNTS);
    for (const [at, row] of rows.entries()) counts.set(row, at * GROUP_COUNTS);
    return { groups: [...this.#rows.keys()], unlisted: this.#rowOfGroup.length - this.#rows.size, counts };
  }

  #assign(inForce: StagedRuleNames): void {
    const { groupIds } = inForce.ruleNames;
    const ids = Array.from(groupIds.ends, (_, group) => textAt(groupIds, group));
    const present = new Set(ids);
    for (const id of this.#rows.keys()) if (!present.has(id)) this.#rows.delete(id);
    this.#rowOfGroup = ids.map((id) => {
      const known = this.#rows.get(id);
      if (known !== undefined || this.#rows.size >= this.#limit) return known ?? this.#others;
      const row = new Float64Array(GROUP_COUNTS);
      this.#rows.set(id, row);
      return row;
    });
    this.#inForce = inForce;
  }

  /**
   * Adds the hits (packets that a rule decided) since the last call. The groups of the given policy must have
   * rows.
   */
  #add(hits: Hits, { ruleNames: { groups, identities, verdicts }, entries }: StagedRuleNames): void {
    for (let rank = 0; rank < entries.length; rank++) {
      const entry = u32At(entries, rank);
      const check = u32At(identities, 2 * rank);
      // Skip an entry that counts for another rule now: its hits belong to the policy that contains the other
      // rule.
      if (entry === 0 || hits.check(entry) !== check) continue;
      if (this.#checks[entry] !== check) {
        this.#checks[entry] = check;
        this.#packets[entry] = 0;
        this.#bytes[entry] = 0;
      }
      const packets = Number(hits.packets(entry));
      const bytes = Number(hits.bytes(entry));
      const newPackets = packets - (this.#packets[entry] ?? 0);
      if (newPackets === 0) continue;
      const group = u32At(groups, rank);
      const row = group === NONE ? this.#policyDefault : itemAt(this.#rowOfGroup, group);
      const column = itemAt(COLUMN_OF, u8At(verdicts, rank));
      row[column] = (row[column] ?? 0) + newPackets;
      row[column + 1] = (row[column + 1] ?? 0) + bytes - (this.#bytes[entry] ?? 0);
      this.#packets[entry] = packets;
      this.#bytes[entry] = bytes;
    }
  }
}
