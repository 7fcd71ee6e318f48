import type {
  DatapathStats,
  FlowFilter,
  FlowPage,
  FlowQuery,
  FlowRefusal,
  GroupTraffic,
  HitQuery,
  HitReport,
} from '#contracts/datapath/datapath.js';
import type { FlowTimeouts } from '#contracts/datapath/datapath-options.js';
import type { FlippedRuleNames } from '#contracts/datapath/event-source.js';
import type { DecidedHit } from '#contracts/datapath/grant-messages.js';
import type { RuleNames } from '#contracts/policy/rule-names.js';
import type { Slot } from '#dataplane/abi/active-word.js';
import type { Slots } from '#dataplane/activate/slots.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { RuleNameHistory } from '#dataplane/events/rule-name-history.js';
import type { GroupCounters } from '#dataplane/flows/hits/group-counters.js';
import { hitReport, rankFinder } from '#dataplane/flows/hits/hit-report.js';
import { Hits, type Placement } from '#dataplane/flows/hits/hits.js';
import { flowTest } from '#dataplane/flows/listing/flow-filter.js';
import type { FoundFlows } from '#dataplane/flows/listing/flow-table.js';
import { liveFlow } from '#dataplane/flows/listing/live-flow.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import type { LoadedObject } from '#dataplane/object/loaded-object.js';
import { identityOf } from '#policy/model/rules/rule-names.js';
import { FamilyTable } from './family-table.js';
import { FlowTablePressure } from './flow-table-pressure.js';
import { Moment } from './moment.js';

type Found = {
  readonly matched: number;
  /** Undecoded flows of each table: each is a `struct flow` followed by its `struct tally`. */
  readonly found: readonly { readonly table: FamilyTable; readonly words: Uint32Array<ArrayBuffer> }[];
  readonly next: Uint8Array | null;
};

export type FlowsCut = { readonly cut: number; readonly next: Uint8Array | null };

export class TrafficStatistics {
  readonly ruleNameHistory: RuleNameHistory;
  /** The flow tables, that of IPv4 first. */
  readonly #tables: readonly FamilyTable[];
  readonly #slots: Slots;
  readonly #hits: Hits;
  readonly #groupCounters: GroupCounters | undefined;
  readonly #refusals: FlowTablePressure;
  /**
   * True if the flow table may contain flows that the policy in the idle program slot decided, and whose
   * counters the datapath has not flushed since the other slot was put in force.
   */
  #needsFlush = true;

  /**
   * `ruleNameHistory` is the history of the predecessor if this object took over the predecessor's maps, else
   * an empty history. `groupCounters` keeps the counts of the source groups; without it, none are kept.
   */
  constructor(
    { object, ipv6, slots }: Pick<LoadedObject, 'object' | 'ipv6' | 'slots'>,
    ruleNameHistory = new RuleNameHistory(),
    groupCounters?: GroupCounters,
  ) {
    this.ruleNameHistory = ruleNameHistory;
    this.#slots = slots;
    this.#hits = new Hits({ hits: object.mapFd('hits'), rankHits: object.mapFd('rank_hits') }, slots.count);
    this.#groupCounters = groupCounters;
    groupCounters?.follow(this.#hits);
    this.#refusals = new FlowTablePressure(object.mapFd('counters'));
    this.#tables = [new FamilyTable('ipv4', object), ...(ipv6 === null ? [] : [new FamilyTable('ipv6', ipv6.object)])];
  }

  /**
   * Returns the index in the map `hits` where each rank (rule or default) of a compiled policy counts its
   * packets. The result is valid until the next call of `stage`.
   */
  find(ruleNames: RuleNames): Placement {
    return this.#hits.find(ruleNames, this.ruleNameHistory.inForce?.entries);
  }

  /**
   * Returns how many ranks (places of rules and defaults), and how many entries of the map `hits`, the given
   * policy, the policy in force and its base need together.
   */
  need(placement: Placement): { readonly ranks: number; readonly hits: number } {
    return this.#hits.need(placement, this.#usedSlots());
  }

  /** Throws `CapacityExceeded` if the policy does not fit into the maps `hits` and `rank_hits`. */
  check(placement: Placement): void {
    this.#hits.checkRoom(placement, this.#usedSlots());
  }

  /**
   * Writes into the idle program slot of `rank_hits` which entry of `hits` counts the packets of each rule
   * and default of a policy. The caller must call `flushIdleSlot` first, and put the policy in force
   * afterwards.
   */
  stage(placement: Placement, generation: number): void {
    const entries = this.#hits.fill(this.#slots.filledSlot, placement, this.#usedSlots());
    this.ruleNameHistory.stage({ ruleNames: placement.ruleNames, generation, entries });
  }

  /**
   * Must be called after the base of an unconfirmed policy came in force without a flip. Returns its rule
   * names; undefined if an earlier process put it in force.
   */
  baseInForce(epoch: number, generation: number): FlippedRuleNames | undefined {
    this.#needsFlush = true;
    return this.ruleNameHistory.revert(epoch, generation);
  }

  /**
   * Must be called before each activation of a policy (flip). The activation makes the other program slot
   * idle, so the next call of `flushIdleSlot` must flush the flows that this slot decided.
   */
  expectFlip(): void {
    if (this.ruleNameHistory.staged === undefined) throw new Error('no compiled policy is staged: call `stage` first');
    this.#needsFlush = true;
  }

  /**
   * Flushes the counters of flows that the policy in the idle program slot decided. Does nothing if no policy
   * was activated since the last call. The caller must call this function before it fills the idle slot,
   * because the old content of the slot determines which rule counts these flows. Before the sweep, waits
   * until no CPU reads the slot for a packet; after the sweep, waits for flushes that still run.
   */
  flushIdleSlot(): void {
    if (!this.#needsFlush) return;
    const { isGraceDue } = this.#slots;
    this.#slots.awaitIdle();
    this.#sweep();
    if (isGraceDue) awaitGracePeriod();
    this.#needsFlush = false;
    this.collectGroups();
  }

  /**
   * Adds the new hits to the counts of the source groups. Called after each activation of a policy, and
   * before this object is replaced, because the hits of rules that leave the policy would be lost otherwise.
   */
  collectGroups(): void {
    const { inForce } = this.ruleNameHistory;
    if (inForce !== undefined) this.#groupCounters?.collect(this.#hits, inForce);
  }

  /**
   * Adds decisions of the service plane (TLS and HTTP inspection) and of the DNS proxy to the hits of their
   * rules. Skips a decision whose rule has no entry in `hits`.
   */
  addHits(decided: readonly DecidedHit[]): void {
    for (const { generation, by, count, lastNs } of decided) {
      const ruleNames = this.ruleNameHistory.ofGeneration(generation);
      if (ruleNames === undefined) continue;
      const { policy, identities } = ruleNames;
      const [low = 0, high = 0] =
        typeof by === 'number' ? identities.subarray(2 * by, 2 * by + 2) : identityOf(policy, by);
      if (low !== 0) this.#hits.add(low, high, count, lastNs);
    }
  }

  hits(query: HitQuery): HitReport | null {
    const { inForce } = this.ruleNameHistory;
    if (inForce === undefined) return null;
    this.#sweep();
    return hitReport(this.#hits, inForce, query, new Moment());
  }

  groupTraffic(): GroupTraffic | null {
    if (this.#groupCounters === undefined || this.ruleNameHistory.inForce === undefined) return null;
    for (const { sweep } of this.#tables) sweep.refresh();
    this.collectGroups();
    return this.#groupCounters.traffic();
  }

  async flows({ filter, after, limit }: FlowQuery, timeoutsMs: FlowTimeouts): Promise<FlowPage> {
    const { matched, found, next } = await this.#find(filter, after, limit);
    const surroundings = {
      ruleNameHistory: this.ruleNameHistory,
      finder: this.ruleNameHistory.finder(),
      epoch: this.#slots.epoch,
      timeoutsMs,
      moment: new Moment(),
      interfaces: new Map(listInterfaces().map(({ name, ifindex }) => [ifindex, name])),
    };
    const items = found.flatMap(({ table: { layout }, words }) => {
      const view = new DataView(words.buffer);
      const count = words.byteLength / layout.bytes;
      return Array.from({ length: count }, (_, index) => liveFlow(layout, view, index * layout.bytes, surroundings));
    });
    return { matched, items, next };
  }

  /**
   * Ends the first `limit` matching flows, in the order of their keys, whose keys are above `after`. `next`
   * is null if no matching flows are left.
   */
  async cutFlows({ filter, after, limit }: FlowQuery): Promise<FlowsCut> {
    const { found, next } = await this.#find(filter, after, limit);
    return { cut: found.reduce((sum, { table, words }) => sum + table.flows.cut({ words }), 0), next };
  }

  refusing(): readonly FlowRefusal[] {
    return this.#refusals.now();
  }

  stats(): { readonly flows: number; readonly halfOpen: number } & Pick<DatapathStats, 'sweep' | 'refusing' | 'maps'> {
    const each = this.#tables.map((table) => table.stats());
    const sum = (of: 'flows' | 'halfOpen'): number => each.reduce((total, stats) => total + stats[of], 0);
    const [slowest] = each.map(({ sweep }) => sweep).toSorted((a, b) => b.tookMs - a.tookMs);
    if (slowest === undefined) throw new Error('the datapath has no flow table');
    return {
      flows: sum('flows'),
      halfOpen: sum('halfOpen'),
      sweep: slowest,
      refusing: this.refusing(),
      maps: {
        ...Object.fromEntries(each.flatMap(({ maps }) => Object.entries(maps))),
        hits: { entries: this.#hits.count, capacity: this.#hits.capacity - 1 },
        rank_hits: {
          entries: this.ruleNameHistory.inForce?.entries.length ?? 0,
          capacity: this.#hits.rankCapacity,
        },
      },
    };
  }

  close(): void {
    this.#hits.unmap();
    for (const table of this.#tables) table.close();
  }

  #sweep(): void {
    for (const { sweep } of this.#tables) sweep.sweep();
  }

  /**
   * Finds flows in the flow tables of both families, with the flows of IPv4 first. The length of the key
   * `after` tells its family.
   */
  async #find(filter: FlowFilter, after: Uint8Array | null, limit: number): Promise<Found> {
    this.#sweep();
    const named = filter.groups.length + filter.rules.length > 0;
    const finder = this.ruleNameHistory.finder();
    const checks = named ? finder.checks((ruleNames) => rankFinder(ruleNames, filter)) : undefined;
    const first = after === null ? 0 : this.#tables.findIndex(({ layout }) => layout.keyBytes === after.length);
    const found: { table: FamilyTable; words: Uint32Array<ArrayBuffer> }[] = [];
    let matched = 0;
    let left = limit;
    let next: Uint8Array | null = null;
    let last = after;
    // Read all tables, even those before and after the requested page, to count all matching flows.
    for (const [index, table] of this.#tables.entries()) {
      const { layout, flows } = table;
      const test = flowTest(filter, { layout, checks, epoch: this.#slots.epoch });
      const isOnPage: boolean = index >= first && next === null;
      const room: number = isOnPage ? left : 0;
      const part: FoundFlows = await flows.find(test, index === first ? after : null, room);
      matched += part.matched;
      if (!isOnPage) continue;
      const count = part.words.byteLength / layout.bytes;
      found.push({ table, words: part.words });
      left -= count;
      const lastAt = (count - 1) * layout.bytes;
      if (count > 0) last = new Uint8Array(part.words.buffer).slice(lastAt, lastAt + layout.keyBytes);
      next = part.next ?? (room === 0 && part.matched > 0 ? last : null);
    }
    return { matched, found, next };
  }

  /**
   * Returns the program slots that contain a policy in this map. None before the first activation, also
   * during an upgrade.
   */
  #usedSlots(): readonly Slot[] {
    return this.#slots.epoch === 0 ? [] : this.#slots.usedSlots;
  }
}
