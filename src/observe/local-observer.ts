import { isDeepStrictEqual } from 'node:util';
import type { EventSource } from '#contracts/datapath/event-source.js';
import type { SeenLookups } from '#contracts/dns/seen-lookup.js';
import type { OwnerChanges } from '#contracts/kubernetes/address-owner.js';
import type { SeenConnections } from '#contracts/service-plane/seen-connection.js';
import { countsOfEvents, type EventBatch } from '#dataplane/events/batch.js';
import { EventConsumer } from '#dataplane/events/event-consumer.js';
import { Surroundings } from '#dataplane/events/surroundings.js';
import { DeniedConnections } from '#observe/denials/denied-connections.js';
import { DeniedEvents, findingsOfLookups, findingsOfRebindings } from '#observe/denials/denied-events.js';
import { MergeError } from '#observe/findings/store/finding-store.js';
import { PendingFindings } from '#observe/findings/store/pending.js';
import type { ObserverStats } from '#observe/metrics/stats.js';
import { AddressNames } from '#observe/names/address-names.js';
import { AddressOwners } from '#observe/names/address-owners.js';
import { RuleNameResolver } from '#observe/names/rule-name-resolver.js';
import type { FindingDelta } from './findings/finding.js';
import { gap } from './findings/gap.js';
import type { FlowHistory } from './flow-history/flow-history.js';
import type { Wanted } from './observer-messages.js';
import { type HubOutput, WiretapHub } from './wiretap/hub.js';

/**
 * The part of the finding store that the observer uses; see `findings/findings-folder.ts`. If `merge`
 * rejects with a `MergeError`, the caller must pass the deltas that were not stored to a later `merge`.
 */
export type FindingKeeper = { readonly count: number; merge(deltas: readonly FindingDelta[]): Promise<void> };

export type ObserverOutput = HubOutput & {
  wanted(wanted: Wanted): void;
  /**
   * Called when the store fails to merge findings. The same failure is reported only once until a merge
   * succeeds. `relief` is called at the first successful merge after a failure.
   */
  trouble(failure: unknown): void;
  relief(code: string, message: string): void;
};

const MERGE_MS = 1_000;
/**
 * The largest fraction of time that merges may take. After a slow merge, the observer waits longer than
 * `MERGE_MS` before the next merge.
 */
const MERGE_SHARE = 0.2;
/**
 * After a start, the kernel still enforces the program of the previous process, and this process must read
 * the rule names of that program first. During the first `NAMELESS_MS` milliseconds of the observer, findings
 * from the datapath and the service plane (TLS and HTTP inspection) wait for these names.
 */
const NAMELESS_MS = 5_000;

/**
 * Merges events into findings, and builds wiretap frames. `observer.worker.ts` runs one instance in the
 * observer thread.
 */
export class LocalObserver {
  readonly hub: WiretapHub;
  readonly #surroundings = new Surroundings();
  readonly #ruleNameResolver = new RuleNameResolver(this.#surroundings.ruleNameHistory);
  readonly #names = new AddressNames();
  readonly #owners = new AddressOwners();
  readonly #denied = new DeniedEvents(this.#ruleNameResolver, this.#owners);
  readonly #deniedConnections = new DeniedConnections(this.#ruleNameResolver, this.#owners);
  readonly #keeper: FindingKeeper;
  readonly #output: ObserverOutput;
  readonly #flowHistory: FlowHistory | null;
  readonly #startedMs = Date.now();
  #eventConsumer: EventConsumer | undefined;
  /**
   * Findings that wait for the next merge: DNS denials, audit events, lost DNS lookups, and findings that an
   * earlier merge did not store. Findings from the datapath and the service plane (TLS and HTTP inspection)
   * wait in the two fields above.
   */
  readonly #waiting = new PendingFindings('observer');
  #timer: NodeJS.Timeout | undefined;
  #merging: Promise<void> | undefined;
  #isClosing = false;
  #wanted: Wanted | undefined;
  #trouble: string | null = null;
  #lost = { kernel: 0, sourceShare: 0, servicePlane: 0, gaps: 0 };
  readonly #events: Record<string, number> = countsOfEvents();

  /** `flowHistory`: records the flows; null if none are recorded. */
  constructor(keeper: FindingKeeper, output: ObserverOutput, replayMs: number, flowHistory: FlowHistory | null = null) {
    this.#keeper = keeper;
    this.#output = output;
    this.#flowHistory = flowHistory;
    const known = {
      ruleNameResolver: this.#ruleNameResolver,
      names: this.#names,
      owners: this.#owners,
      surroundings: this.#surroundings,
    };
    this.hub = new WiretapHub(known, output, replayMs);
    this.#mergeLater(MERGE_MS);
    this.reportWanted();
  }

  /** Closes the previous source of kernel events, and reads kernel events from `source` from now on. */
  readEvents(source: EventSource): void {
    this.#eventConsumer?.close();
    this.#eventConsumer = new EventConsumer(source, this.#surroundings, (batch) => this.#see(batch));
  }

  see(seen: SeenLookups): void {
    // Read the rule names that have arrived. They are otherwise read only with kernel events, and this DNS
    // lookup may refer to a policy that has caused no kernel event yet.
    this.#eventConsumer?.learn();
    for (const { address, hostname } of seen.named) this.#names.add(address, hostname);
    for (const delta of findingsOfLookups(seen.lookups, this.#ruleNameResolver, this.#owners)) this.#waiting.add(delta);
    for (const delta of findingsOfRebindings(seen.rebindings, this.#owners)) this.#waiting.add(delta);
    const now = Date.now();
    if (seen.lostDenied > 0) this.#waiting.add(gap('dns', seen.lostDenied, now, now));
    this.hub.lookups(seen, now);
  }

  seeOwners(changes: OwnerChanges): void {
    this.#owners.change(changes);
  }

  seeConnections(seen: SeenConnections): void {
    this.#eventConsumer?.learn();
    const now = Date.now();
    this.#lost.servicePlane += seen.lost;
    this.#deniedConnections.add(seen, now);
    this.hub.connections(seen, now);
  }

  record(delta: FindingDelta): void {
    this.#waiting.add(delta);
  }

  /**
   * Calls `wanted` of the output if the hub now needs other optional events than at the previous call. Call
   * this method after each change of the wiretap readers.
   */
  reportWanted(): void {
    const { wantsFlows, wantsLookups: lookups, wantsConnections: connections } = this.hub;
    const wanted = { flows: wantsFlows || this.#flowHistory !== null, lookups, connections };
    if (isDeepStrictEqual(wanted, this.#wanted)) return;
    this.#wanted = wanted;
    this.#output.wanted(wanted);
  }

  /**
   * Merges the events received so far into the stored findings. Also resolves if the store fails or rule
   * names are still missing; the findings then wait for a later merge.
   */
  async merge(): Promise<void> {
    await this.#merging;
    this.#merging = this.#merge();
    await this.#merging;
  }

  /**
   * Returns the counters of this thread. `observer.worker.ts` adds the counters of the sinks (file and
   * webhook), and `Observer` adds the counters of the wiretap readers.
   */
  counts(): Omit<ObserverStats, 'readers' | 'lostReader' | 'sinks'> {
    const merged = this.#denied.merged + this.#deniedConnections.merged;
    const overflowed = this.#denied.overflowed + this.#deniedConnections.overflowed;
    return {
      messages: this.hub.messages,
      lostKernel: this.#lost.kernel,
      lostSourceShare: this.#lost.sourceShare,
      lostServicePlane: this.#lost.servicePlane,
      events: { ...this.#events },
      findings: { merged, entries: this.#keeper.count, overflowed, gaps: this.#lost.gaps },
      flowHistory: {
        flows: this.#flowHistory?.count ?? 0,
        folded: this.#flowHistory?.folded ?? 0,
        notRecorded: this.#flowHistory?.unrecorded ?? 0,
      },
    };
  }

  async close(): Promise<void> {
    clearTimeout(this.#timer);
    this.#eventConsumer?.close();
    this.#isClosing = true;
    await this.merge();
    clearTimeout(this.#timer);
  }

  #see(batch: EventBatch): void {
    const now = Date.now();
    for (const [type, count] of Object.entries(batch.tally())) this.#events[type] = (this.#events[type] ?? 0) + count;
    this.#lost.kernel += batch.lost;
    this.#lost.sourceShare += batch.suppressed;
    this.#denied.add(batch, now);
    this.#flowHistory?.add(batch, this.#names, now);
    this.hub.events(batch, now);
  }

  #mergeLater(ms: number): void {
    this.#timer = setTimeout(() => void this.merge(), ms);
  }

  async #merge(): Promise<void> {
    clearTimeout(this.#timer);
    const started = performance.now();
    this.#flowHistory?.tick(Date.now());
    this.#eventConsumer?.learn();
    const isNameless =
      this.#surroundings.ruleNameHistory.inForce === undefined && Date.now() - this.#startedMs < NAMELESS_MS;
    const isEarly = isNameless && !this.#isClosing;
    const denied = isEarly ? [] : [...this.#denied.drain(), ...this.#deniedConnections.drain()];
    const deltas = [...this.#waiting.drain(), ...denied];
    const gaps = deltas.filter(({ type }) => type === 'gap').reduce((sum, { count }) => sum + count, 0);
    try {
      await this.#keeper.merge(deltas);
      this.#lost.gaps += gaps;
      if (this.#trouble !== null) this.#output.relief('findings_stored', 'findings are stored again');
      this.#trouble = null;
    } catch (failure) {
      for (const delta of failure instanceof MergeError ? failure.unmerged : deltas) this.#waiting.add(delta);
      const message = failure instanceof Error ? failure.message : String(failure);
      if (message !== this.#trouble) this.#output.trouble(failure);
      this.#trouble = message;
    }
    const tookMs = performance.now() - started;
    this.#mergeLater(Math.max(MERGE_MS, tookMs / MERGE_SHARE));
  }
}
