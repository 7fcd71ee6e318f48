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
import { capacityOf, FLOW_BYTES } from '#dataplane/abi/flow.js';
import type { Slots } from '#dataplane/activate/slots.js';
import { listInterfaces } from '#dataplane/attach/interfaces/interfaces.js';
import { RuleNameHistory } from '#dataplane/events/rule-name-history.js';
import type { GroupCounters } from '#dataplane/flows/hits/group-counters.js';
import { hitReport, rankFinder } from '#dataplane/flows/hits/hit-report.js';
import { Hits, type Placement } from '#dataplane/flows/hits/hits.js';
import { flowTest } from '#dataplane/flows/listing/flow-filter.js';
import { FlowTable, type FoundFlows } from '#dataplane/flows/listing/flow-table.js';
import { liveFlow } from '#dataplane/flows/listing/live-flow.js';
import { MappedFlows } from '#dataplane/flows/listing/mapped-flows.js';
import { mapShape } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { countEntries } from '#dataplane/loader/map-batches.js';
import { identityOf } from '#policy/model/rules/rule-names.js';
import { FlowTablePressure } from './flow-table-pressure.js';
import { Moment } from './moment.js';
import { FlowSweep } from './sweep.js';

export type FlowsCut = { readonly cut: number; readonly next: Uint8Array | null };

export class TrafficStatistics {
  readonly ruleNameHistory: RuleNameHistory;
  readonly #object: Pick<BpfObject, 'mapFd' | 'programFd'>;
  readonly #slots: Slots;
  readonly #hits: Hits;
  readonly #groupCounters: GroupCounters | undefined;
  readonly #flowSweep: FlowSweep;
  readonly #flows: FlowTable;
  readonly #refusals: FlowTablePressure;
  /**
   * True if the flow table may contain flows that the policy in the idle slot decided, and whose counters the
   * datapath has not flushed since the other slot was put in force.
   */
  #needsFlush = true;

  /**
   * `ruleNameHistory` is the history of the predecessor if this object took over the predecessor's maps, else
   * an empty history. `groupCounters` keeps the counts of the source groups; without it, none are kept.
   */
  constructor(
    object: Pick<BpfObject, 'mapFd' | 'programFd'>,
    slots: Slots,
    ruleNameHistory = new RuleNameHistory(),
    groupCounters?: GroupCounters,
  ) {
    this.ruleNameHistory = ruleNameHistory;
    this.#object = object;
    this.#slots = slots;
    this.#hits = new Hits({ hits: object.mapFd('hits'), rankHits: object.mapFd('rank_hits') }, slots.count);
    this.#groupCounters = groupCounters;
    groupCounters?.follow(this.#hits);
    this.#flowSweep = new FlowSweep({ vitals: object.mapFd('vitals'), sweep: object.programFd('weir_sweep') });
    this.#refusals = new FlowTablePressure(object.mapFd('counters'));
    this.#flows = new FlowTable(
      () =>
        new MappedFlows({
          flows: object.mapFd('flows'),
          tallies: object.mapFd('tallies'),
          rankHits: object.mapFd('rank_hits'),
        }),
      object.programFd('weir_cut'),
    );
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
   * Writes into the idle slot of `rank_hits` which entry of `hits` counts the packets of each rule and
   * default of a policy. The caller must call `flushIdleSlot` first, and put the policy in force afterwards.
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
   * Must be called before each activation of a policy (flip). The activation makes the other slot idle, so
   * the next call of `flushIdleSlot` must flush the flows that this slot decided.
   */
  expectFlip(): void {
    if (this.ruleNameHistory.staged === undefined) throw new Error('nothing is staged');
    this.#needsFlush = true;
  }

  /**
   * Flushes the counters of flows that the policy in the idle slot decided. Does nothing if no policy was
   * activated since the last call. The caller must call this function before it fills the idle slot, because
   * the old content of the slot determines which rule counts these flows. Before the sweep, waits until no
   * CPU reads the slot for a packet; after the sweep, waits for flushes that still run.
   */
  flushIdleSlot(): void {
    if (!this.#needsFlush) return;
    const { isGraceDue } = this.#slots;
    this.#slots.awaitIdle();
    this.#flowSweep.sweep();
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
   * Adds decisions of the service plane and of the DNS proxy to the hits of their rules. Skips a decision
   * whose rule has no entry in `hits`.
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
    this.#flowSweep.sweep();
    return hitReport(this.#hits, inForce, query, new Moment());
  }

  groupTraffic(): GroupTraffic | null {
    if (this.#groupCounters === undefined || this.ruleNameHistory.inForce === undefined) return null;
    this.#flowSweep.refresh();
    this.collectGroups();
    return this.#groupCounters.traffic();
  }

  async flows({ filter, after, limit }: FlowQuery, timeoutsMs: FlowTimeouts): Promise<FlowPage> {
    const { matched, words, next } = await this.#find(filter, after, limit);
    const surroundings = {
      ruleNameHistory: this.ruleNameHistory,
      finder: this.ruleNameHistory.finder(),
      epoch: this.#slots.epoch,
      timeoutsMs,
      moment: new Moment(),
      interfaces: new Map(listInterfaces().map(({ name, ifindex }) => [ifindex, name])),
    };
    const view = new DataView(words.buffer);
    const count = words.byteLength / FLOW_BYTES;
    const items = Array.from({ length: count }, (_, index) => liveFlow(view, index * FLOW_BYTES, surroundings));
    return { matched, items, next };
  }

  /**
   * Ends the first `limit` matching flows, in the order of their keys, whose keys are above `after`. `next`
   * is null if no matching flows are left.
   */
  async cutFlows({ filter, after, limit }: FlowQuery): Promise<FlowsCut> {
    const found = await this.#find(filter, after, limit);
    return { cut: this.#flows.cut(found), next: found.next };
  }

  refusing(): readonly FlowRefusal[] {
    return this.#refusals.now();
  }

  stats(): { readonly flows: number; readonly halfOpen: number } & Pick<DatapathStats, 'sweep' | 'refusing' | 'maps'> {
    this.#flowSweep.refresh();
    const { flows, halfOpen, lastSweep: sweep } = this.#flowSweep;
    const fragments = mapShape(this.#object.mapFd('fragments'));
    const { maxEntries: lines } = mapShape(this.#object.mapFd('flows'));
    return {
      flows,
      halfOpen,
      sweep,
      refusing: this.refusing(),
      maps: {
        flows: { entries: flows, capacity: capacityOf(lines) },
        half_open: { entries: halfOpen, capacity: lines - capacityOf(lines) },
        fragments: {
          entries: countEntries(this.#object.mapFd('fragments'), fragments),
          capacity: fragments.maxEntries,
        },
        hits: { entries: this.#hits.count, capacity: this.#hits.capacity - 1 },
        rank_hits: {
          entries: this.ruleNameHistory.inForce?.entries.length ?? 0,
          capacity: this.#hits.rankCapacity,
        },
      },
    };
  }

  close(): void {
    this.#flows.close();
    this.#hits.unmap();
    this.#flowSweep.unmap();
  }

  #find(filter: FlowFilter, after: Uint8Array | null, limit: number): Promise<FoundFlows> {
    this.#flowSweep.sweep();
    const named = filter.groups.length + filter.rules.length > 0;
    const finder = this.ruleNameHistory.finder();
    const checks = named ? finder.checks((ruleNames) => rankFinder(ruleNames, filter)) : undefined;
    return this.#flows.find(flowTest(filter, { checks, epoch: this.#slots.epoch }), after, limit);
  }

  /** The slots with a policy in this map. None before the first activation, also during a takeover. */
  #usedSlots(): readonly Slot[] {
    return this.#slots.epoch === 0 ? [] : this.#slots.usedSlots;
  }
}
