import {
  type Adoption,
  type Attachment,
  type DatapathChange,
  type DatapathStats,
  type EventsWanted,
  type Flipped,
  type FlowPage,
  type FlowQuery,
  type Grant,
  type GroupTraffic,
  type HitQuery,
  type HitReport,
  type Learned,
  type Missing,
  NO_EVENTS,
  ProofFailed,
  type Review,
  type Staged,
} from '#contracts/datapath.js';
import { type DatapathOptions, matchesInterface } from '#contracts/datapath-options.js';
import type { FlippedRuleNames } from '#contracts/event-source.js';
import type { Arrival } from '#contracts/explain-facts.js';
import type { DecidedHit } from '#contracts/grant-messages.js';
import type { Packet } from '#contracts/policy-model.js';
import type { Program } from '#contracts/program.js';
import type { Proof, ProofSample } from '#contracts/proof-types.js';
import type { SpliceOffload } from '#contracts/splice-offload.js';
import type { DestinationTranslation } from '#contracts/translation.js';
import { Hooks } from '#dataplane/attach/interface-hooks.js';
import type { Interface } from '#dataplane/attach/interfaces.js';
import { Ownership } from '#dataplane/attach/ownership.js';
import { Pins } from '#dataplane/attach/pins.js';
import { writePorts } from '#dataplane/attach/port-table.js';
import { probe } from '#dataplane/attach/probe.js';
import { refuseOtherNodes } from '#dataplane/attach/refuse-foreign.js';
import { Watcher } from '#dataplane/attach/watcher.js';
import { datapathStats } from '#dataplane/flows/datapath-stats.js';
import { FlowRenewal } from '#dataplane/flows/flow-renewal.js';
import { GroupCounters } from '#dataplane/flows/group-counters.js';
import { type FlowsCut, TrafficStatistics } from '#dataplane/flows/traffic-statistics.js';
import { Forwarding } from '#dataplane/forwarding/forwarding.js';
import { Guard } from '#dataplane/guard/nftables-guard.js';
import { Lines } from '#dataplane/image/cache-lines.js';
import { layout } from '#dataplane/image/program-image.js';
import { programId } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { DIRECTIONS, type Direction } from '#dataplane/loader/direction.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { LentObjects } from '#dataplane/object/lent-objects.js';
import { inForceAt } from '#dataplane/object/map-set.js';
import { spliceOffloadOf } from '#dataplane/object/splice-offload.js';
import { arrivalOf } from '#dataplane/review/arrival.js';
import { policedPorts, review } from '#dataplane/review/review.js';
import { diversionStands, makeDiversion, removeDiversion } from '#dataplane/routes/divert.js';
import { destinationTranslationOf, withTranslations } from '#dataplane/translation/shown-translation.js';
import { Translation } from '#dataplane/translation/translation.js';
import type { FixedOptions } from '#dataplane/upgrade/successor.js';
import { Upgrade } from '#dataplane/upgrade/upgrade.js';
import type { KernelNotifications } from '#dataplane/watch/kernel-notifications.js';
import type { KernelWatchMaps } from '#dataplane/watch/kernel-watch.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { MemberChanges } from './member-changes.js';
import { objectOptions } from './object-options.js';
import { flipProgram, stageProgram } from './staging.js';

/**
 * Implements the operations of `Datapath` in the calling thread, where each call may block. The datapath
 * thread has one instance.
 */
export class LocalDatapath {
  #options: DatapathOptions;
  readonly #objectOptions: FixedOptions;
  readonly #pins: Pins;
  readonly #ownership: Ownership;
  readonly #hooks: Hooks;
  readonly #guard: Guard;
  readonly #translation: Translation;
  readonly #forwarding: Forwarding;
  readonly #watcher = new Watcher();
  /**
   * Buffer for the cache lines of an image. Every image uses the same buffer, because allocating the memory
   * takes more time than filling it.
   */
  readonly #lines = new Lines();
  /** Changes that the next call of `look` returns. */
  #unreported: DatapathChange[] = [];
  #upgrade: Upgrade | undefined;
  readonly #groupCounters: GroupCounters | undefined;
  #trafficStatistics: TrafficStatistics | undefined;
  #lent: LentObjects | undefined;
  #flowRenewal: FlowRenewal | undefined;
  #memberChanges: MemberChanges | undefined;
  #eventsWanted: EventsWanted = NO_EVENTS;

  /**
   * Long-running methods call this function between their steps. The datapath thread replaces it by a
   * function that serves urgent requests, such as grants.
   */
  yieldToRequests: () => void = () => {};

  /**
   * `open` calls this function with the policy that it finds in force, before it loads the BPF programs.
   * Until the next `flip`, the kernel enforces this policy.
   */
  found: (inForce: Adoption['inForce']) => void = () => {};

  /**
   * `flip` calls this function with the rule names of a policy before it puts the policy in force. So
   * consumers of events know the names before the first event of the policy.
   */
  announce: (placed: FlippedRuleNames) => void = () => {};

  constructor(options: DatapathOptions) {
    this.#options = options;
    this.#objectOptions = objectOptions(options);
    this.#pins = new Pins(options.pinPath);
    this.#ownership = new Ownership(options.pinPath);
    this.#hooks = new Hooks(options, this.#pins);
    this.#guard = new Guard(options);
    this.#forwarding = new Forwarding(options, this.#hooks, this.#guard);
    const { countedGroups = 0 } = options;
    if (countedGroups > 0) this.#groupCounters = new GroupCounters(countedGroups);
    this.#translation = new Translation(options, this.#guard, this.#pins, () => this.#forwarding.netfilterPrograms());
  }

  probe(): Missing[] {
    return probe(this.#objectOptions.objectPath, this.#pins.path);
  }

  open(): Adoption {
    this.close();
    this.#ownership.take(() => this.#pins.prepare());
    try {
      this.#pins.refuseOthers();
      refuseOtherNodes(this.#pins.path, this.#hooks.interfaces().policed, this.#hooks.attachedPrograms());
      this.found(inForceAt(this.#pins.path));
      this.#guard.acceptEarlier();
      this.#translation.adopt();
      this.#upgrade = this.#createUpgrade();
    } catch (error) {
      this.close();
      throw error;
    }
    const { loaded, adopted } = this.#upgrade;
    this.#lent = new LentObjects(loaded.object);
    this.#flowRenewal = new FlowRenewal(loaded.object);
    this.#memberChanges = new MemberChanges(() => this.#opened().loaded, this.#flowRenewal);
    this.#trafficStatistics = new TrafficStatistics(loaded.object, loaded.slots, undefined, this.#groupCounters);
    loaded.slots.setEventsWanted(this.#eventsWanted);
    this.#forwarding.begin(loaded.slots);
    loaded.routes.look();
    this.#unreported.push(...this.#forwarding.look(loaded.slots));
    const inForce = this.#upgrade.inForce();
    return {
      adopted,
      inForce:
        inForce === null
          ? null
          : { generation: inForce.generation, imageSha256: inForce.imageSha256, sinceMs: inForce.sinceMs },
    };
  }

  #createUpgrade(): Upgrade {
    return new Upgrade(
      this.#objectOptions,
      this.#options.programCapacity,
      this.#pins.path,
      this.#hooks.attachedPrograms(),
    );
  }

  attach(): Attachment[] {
    return this.#attach(this.#options.interfaces);
  }

  /** Attaches the policed interfaces. Throws if an interface with one of these names cannot be attached. */
  #attach(required: readonly string[]): Attachment[] {
    const upgrade = this.#opened();
    // An operator may have removed the pin folders, with all links and pins in them. Create the folders
    // again before the hooks are attached.
    this.#ownership.take(() => this.#pins.prepare());
    upgrade.restorePins();
    // Make the guard (Weir's nftables rules) before the hooks are attached. Without the guard, the kernel
    // would forward unclassified packets from an interface until its BPF program is attached.
    this.#guard.make();
    if (this.#diverts()) makeDiversion(this.#options.markMask);
    else removeDiversion();
    const interfaces = this.#hooks.interfaces();
    const { policed } = interfaces;
    writePorts(upgrade.loaded.object.mapFd('ports'), policedPorts(policed));
    const { attachments, failures } = this.#putOnHooks(policed);
    this.#hooks.prune();
    this.#unreported.push(...this.#watcher.changesOfNames(interfaces));
    this.#watcher.attached(policed);
    // Load the judge before the policy is adopted: a failure leaves the predecessor in force.
    if (upgrade.awaitsFlip) this.#translation.await(upgrade.loaded);
    if (this.#isOnHooks(policed)) upgrade.advance(() => this.#switchHooks());
    if (!upgrade.awaitsFlip) this.#guardOwnOnly();
    this.#followTranslation(upgrade);
    this.#unreported.push(...this.#forwarding.look(upgrade.loaded.slots));
    const failed = failures.find(({ name }) => matchesInterface(required, name));
    if (failed !== undefined) throw failed.error;
    return attachments;
  }

  /**
   * Replaces the names of the policed interfaces. The added interfaces are attached before the removed ones
   * are detached, so that a failure leaves no interface of the former names without a policy. An interface
   * that is removed may fail. Throws `owned_elsewhere` if an added interface has programs of another node.
   */
  police(interfaces: readonly string[]): Attachment[] | null {
    const before = this.#options.interfaces;
    if (this.#upgrade === undefined) {
      this.#name(interfaces);
      return null;
    }
    try {
      this.#name([...new Set([...before, ...interfaces])]);
      refuseOtherNodes(this.#pins.path, this.#hooks.interfaces().policed, this.#hooks.attachedPrograms());
      this.#attachNamed(interfaces);
      this.#name(interfaces);
      return this.#attachNamed(interfaces);
    } catch (failure) {
      try {
        this.#name(before);
        this.#attachNamed(before);
      } catch {
        // `look` reports each interface that is not attached, and the actor attaches again.
      }
      throw failure;
    }
  }

  #attachNamed(required: readonly string[]): Attachment[] {
    // `look` must not report the interfaces of this change as appeared or vanished.
    this.#watcher.attached(this.#hooks.interfaces().policed);
    return this.#attach(required);
  }

  #name(interfaces: readonly string[]): void {
    this.#options = { ...this.#options, interfaces };
    this.#hooks.police(interfaces);
    this.#guard.police(interfaces);
  }

  /**
   * Returns the faults that prevent the configured policing, and warnings. A later call of `look` reports
   * `review_changed` if the result differs from the result returned here.
   */
  review(): Review {
    const found = this.#review();
    this.#watcher.reviewed(found);
    return found;
  }

  #review(): Review {
    return review({
      options: this.#options,
      hooks: this.#hooks,
      guard: this.#guard,
      others: () => this.#forwarding.others(),
      nat: this.#translation.support(this.#objectOptions),
      diverts: this.#diverts(),
    });
  }

  stage(program: Program, generation: number): Staged {
    const upgrade = this.#opened();
    const image = layout(program, this.#lines);
    this.yieldToRequests();
    // During a takeover from an earlier datapath, the next flip takes effect on all hooks at the same time.
    // So every hook must have the new BPF programs before the flip.
    if (upgrade.awaitsFlip) this.#switchHooks();
    const trafficStatistics = this.#statisticsOf();
    let placement = trafficStatistics.find(program.ruleNames);
    this.yieldToRequests();
    const need = { lines: image.lines, ...trafficStatistics.need(placement) };
    if (upgrade.grow(need, () => this.#switchHooks())) {
      this.#renewTrafficStatistics();
      placement = this.#statisticsOf().find(program.ruleNames);
    }
    const { slots, grants, members, options } = upgrade.loaded;
    const { yieldToRequests } = this;
    const staged = { slots, grants, members, trafficStatistics: this.#statisticsOf(), yieldToRequests };
    stageProgram(staged, program, generation, { image, placement });
    this.yieldToRequests();
    return { lines: image.lines, capacityLines: options.slotLines };
  }

  prove(sample: ProofSample): Proof {
    const { slots, prover } = this.#opened().loaded;
    if (!slots.staged) throw new Error('nothing is staged');
    const mismatch = prover.mismatch(sample, slots.idleSlot, this.yieldToRequests);
    if (mismatch !== null) {
      slots.unstage();
      throw new ProofFailed(mismatch);
    }
    const { classes, complete, expected } = sample;
    return { classes, checked: expected.length, complete };
  }

  flip(): Flipped {
    const upgrade = this.#opened();
    const { slots, grants, members } = upgrade.loaded;
    const changesHands = upgrade.awaitsFlip;
    if (slots.epoch === 0 && !changesHands) {
      slots.setPickupUntil(process.hrtime.bigint() + BigInt(this.#options.pickupMs) * 1_000_000n);
    }
    const trafficStatistics = this.#statisticsOf();
    const { staged } = trafficStatistics.ruleNameHistory;
    if (staged !== undefined) this.announce({ ...staged, epoch: slots.nextEpoch });
    const flipped = flipProgram({ slots, grants, members, trafficStatistics }, upgrade.enforced());
    if (changesHands) {
      upgrade.complete(() => {
        this.#putOnHooks(this.#hooks.interfaces().policed);
        this.#followTranslation(upgrade);
      });
      this.#guardOwnOnly();
    }
    return flipped;
  }

  /**
   * Waits for grace periods and flushes counters after a flip. Otherwise the next `stage` would have to do
   * this while a client waits for its policy write.
   */
  settle(): void {
    try {
      this.#trafficStatistics?.flushIdleSlot();
      this.#upgrade?.loaded.routes.look();
    } catch {
      // Ignore the error: the next `stage` does the same work and reports the error.
    }
  }

  unstage(): void {
    this.#opened().loaded.slots.unstage();
    this.#statisticsOf().ruleNameHistory.unstage();
  }

  hits(query: HitQuery): HitReport | null {
    return this.#statisticsOf().hits(query);
  }

  groupTraffic(): GroupTraffic | null {
    return this.#statisticsOf().groupTraffic();
  }

  /**
   * Adds the decisions of the DNS proxy and of the service plane to the hits of the deciding rules. Ignores
   * the decisions while the datapath is not open.
   */
  addHits(decided: readonly DecidedHit[]): void {
    this.#trafficStatistics?.addHits(decided);
  }

  async flows(query: FlowQuery): Promise<FlowPage> {
    const page = await this.#statisticsOf().flows(query, this.#options.timeoutsMs);
    return this.#upgrade?.loaded.slots.translates === true ? withTranslations(page) : page;
  }

  cutFlows(query: FlowQuery): Promise<FlowsCut> {
    return this.#statisticsOf().cutFlows(query);
  }

  grant(grants: readonly Grant[]): { readonly refused: number } {
    return { refused: this.#opened().loaded.grants.add(grants, process.hrtime.bigint()) };
  }

  revoke(grants: readonly Pick<Grant, 'pattern' | 'addresses'>[]): void {
    this.#opened().loaded.grants.remove(grants);
  }

  /** The changes of members; they are also served while another method runs. */
  get memberChanges(): MemberChanges {
    if (this.#memberChanges === undefined) throw new Error('the datapath is not open');
    return this.#memberChanges;
  }

  /**
   * Returns the texts of the patterns for which an address has a grant; null if the datapath is not open. If
   * `expiredToo` is true, expired grants that are still stored count too.
   */
  grantedFor(address: number, expiredToo: boolean): readonly string[] | null {
    return this.#upgrade?.loaded.grants.patternsOf(address, expiredToo ? 0n : process.hrtime.bigint()) ?? null;
  }

  spliceOffload(): SpliceOffload {
    const { loaded } = this.#opened();
    return spliceOffloadOf(loaded, this.#lentOf());
  }

  arrival(source: number): Arrival {
    return arrivalOf(source, this.#hooks.interfaces().policed);
  }

  destinationTranslation(packet: Packet): DestinationTranslation | null {
    if (!this.#opened().loaded.slots.translates) return null;
    return destinationTranslationOf(packet, this.#options.translated);
  }

  learned(): readonly Learned[] {
    return this.#opened().loaded.grants.learned(process.hrtime.bigint());
  }

  /**
   * Removes expired grants, so that the grant table has room for new grants. The policy does not depend on
   * this: the BPF program checks the expiry of each grant.
   */
  sweepGrants(): void {
    const grants = this.#upgrade?.loaded.grants;
    grants?.sweep(process.hrtime.bigint(), () => this.yieldToRequests());
    if (grants?.isGraceDue !== true) return;
    awaitGracePeriod();
    grants.afterGrace();
  }

  stats(): DatapathStats {
    return datapathStats(this.#opened().loaded, this.#statisticsOf(), this.#forwarding.now);
  }

  /**
   * Selects the kinds of events that the datapath reports. The selection also applies to a datapath that is
   * opened later.
   */
  setEventsWanted(wanted: EventsWanted): void {
    this.#eventsWanted = wanted;
    this.#upgrade?.loaded.slots.setEventsWanted(wanted);
  }

  kernelWatchMaps(): KernelWatchMaps {
    return this.#lentOf().kernelWatchMaps(this.#opened().loaded.object);
  }

  /** Returns the rule names of the former policies and, as the last element, of the policy in force. */
  placed(): readonly FlippedRuleNames[] {
    return this.#statisticsOf().ruleNameHistory.placed;
  }

  /** Reads the given kinds of kernel state, and returns the changes since the last call. */
  look(at: KernelNotifications = { links: true, guard: true, others: true }): DatapathChange[] {
    if (this.#upgrade === undefined) return [];
    this.#upgrade.loaded.routes.look();
    this.#guard.retryRefused();
    // Each check stores its changes in `#unreported` before the next check runs. The watcher reports each
    // loss only once, so a loss would go unreported if a later check threw an error.
    if (at.links) this.#reportInterfaces(this.#upgrade);
    if (at.links || at.others) this.#reportReview(this.#upgrade);
    this.#unreported.push(...this.#watcher.changesOfRefusals(this.#statisticsOf().refusing()));
    if (at.links) this.#unreported.push(...this.#watcher.changesOfPins(this.#upgrade.lostPins()));
    if (at.guard) {
      const stands = this.#guard.stands() && this.#translation.stands(this.#upgrade.loaded);
      this.#unreported.push(...this.#watcher.changesOfGuard(stands));
    }
    if (at.others) {
      this.#changeTranslation(this.#upgrade);
      this.#unreported.push(...this.#forwarding.look(this.#upgrade.loaded.slots));
      if (this.#diverts()) {
        this.#unreported.push(...this.#watcher.changesOfDiversion(diversionStands(this.#options.markMask)));
      }
    }
    const unreported = this.#unreported;
    this.#unreported = [];
    return unreported;
  }

  close(): void {
    this.#trafficStatistics?.close();
    this.#trafficStatistics = undefined;
    this.#lent?.close();
    this.#lent = undefined;
    this.#memberChanges?.close();
    this.#memberChanges = undefined;
    this.#flowRenewal?.unmap();
    this.#flowRenewal = undefined;
    if (this.#upgrade !== undefined) this.#forwarding.end(this.#upgrade.loaded.slots);
    this.#forwarding.close();
    this.#upgrade?.close();
    this.#upgrade = undefined;
    this.#ownership.release();
  }

  /** Returns whether the datapath redirects some packets to the DNS proxy or to the service plane. */
  #diverts(): boolean {
    return this.#options.divertDns === true || this.#options.servicePlane != null;
  }

  #opened(): Upgrade {
    if (this.#upgrade === undefined) throw new Error('the datapath is not open');
    return this.#upgrade;
  }

  #lentOf(): LentObjects {
    if (this.#lent === undefined) throw new Error('the datapath is not open');
    return this.#lent;
  }

  #statisticsOf(): TrafficStatistics {
    if (this.#trafficStatistics === undefined) throw new Error('the datapath is not open');
    return this.#trafficStatistics;
  }

  /**
   * Maps the maps for traffic statistics into memory again, after a BPF object with larger maps has replaced
   * the loaded object.
   */
  #renewTrafficStatistics(): void {
    const { object, slots } = this.#opened().loaded;
    const replaced = this.#statisticsOf();
    replaced.collectGroups();
    replaced.close();
    this.#trafficStatistics = new TrafficStatistics(object, slots, replaced.ruleNameHistory, this.#groupCounters);
  }

  #putOnHooks(policed: readonly Interface[]): {
    attachments: Attachment[];
    failures: { readonly name: string; readonly error: Error }[];
  } {
    const { programs } = this.#opened();
    const fds = { ingress: programs.programFd('weir_ingress'), egress: programs.programFd('weir_egress') };
    const attachments: Attachment[] = [];
    const failures: { readonly name: string; readonly error: Error }[] = [];
    for (const found of policed) {
      try {
        attachments.push(this.#hooks.attach(found, fds));
      } catch (error) {
        // Continue with the other interfaces. The guard drops forwarded packets from the interface whose
        // hook could not be attached.
        if (this.#hooks.isThere(found)) failures.push({ name: found.name, error: error as Error });
      }
    }
    return { attachments, failures };
  }

  /**
   * Returns true if each hook of these interfaces has either the BPF program of `Upgrade.programs`, or no
   * program of Weir.
   */
  #isOnHooks(policed: readonly Interface[]): boolean {
    const own = programIds(this.#opened().programs);
    return policed.every((found) =>
      DIRECTIONS.every((direction) => {
        const attached = this.#hooks.attachedProgram(found, direction);
        return attached === undefined || attached.programId === own[direction];
      }),
    );
  }

  /**
   * Makes the guard accept only the mark bit of this process. May be called only when no BPF program of an
   * earlier process is attached any more, because such a program may set another mark bit.
   */
  #guardOwnOnly(): void {
    this.#guard.acceptOwnOnly();
    this.#guard.make();
  }

  #switchHooks(): void {
    const { policed } = this.#hooks.interfaces();
    const { failures } = this.#putOnHooks(policed);
    if (!this.#isOnHooks(policed))
      throw failures[0]?.error ?? new Error('switch the hooks: a hook still holds another program');
    this.#followTranslation(this.#opened());
  }

  /** Attaches the forward judge of the programs on the hooks, if the node translates addresses. */
  #followTranslation(upgrade: Upgrade): void {
    if (upgrade.awaitsFlip) this.#translation.await(upgrade.loaded);
    else this.#translation.follow(upgrade.loaded, this.#forwarding.translates());
  }

  /** Does nothing unless NAT rules have appeared or vanished. */
  #changeTranslation(upgrade: Upgrade): void {
    const { slots, options } = upgrade.loaded;
    const wanted = this.#forwarding.translates() && this.#translation.obstacle(options) === null;
    if (slots.translates !== wanted) this.#followTranslation(upgrade);
  }

  /** Reviews the configuration, and tells the datapath which interfaces are bridge ports now. */
  #reportReview({ loaded }: Upgrade): void {
    try {
      writePorts(loaded.object.mapFd('ports'), policedPorts(this.#hooks.interfaces().policed));
      this.#unreported.push(...this.#watcher.changesOfReview(this.#review()));
    } catch (error) {
      // The kernel's lists changed during each attempt to read them, so there is no result now. The next
      // call of `look` reads them again.
      if (!(error instanceof KernelFailure) || error.code !== 'EINTR') throw error;
    }
  }

  #reportInterfaces({ programs }: Upgrade): void {
    const own = programIds(programs);
    const directions = this.#hooks.directions();
    const interfaces = this.#hooks.interfaces();
    const isAttached = (found: Interface): boolean =>
      directions.every((direction) => this.#hooks.attachedProgram(found, direction)?.programId === own[direction]);
    this.#unreported.push(...this.#watcher.changesOfNames(interfaces));
    this.#unreported.push(...this.#watcher.changesOfLinks(interfaces.policed, isAttached));
  }
}

function programIds(object: BpfObject): Readonly<Record<Direction, number>> {
  return {
    ingress: programId(object.programFd('weir_ingress')),
    egress: programId(object.programFd('weir_egress')),
  };
}
