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
  type MachineCheck,
  type Missing,
  NO_EVENTS,
  ProofFailed,
  type Review,
  type Staged,
} from '#contracts/datapath/datapath.js';
import type { DatapathOptions } from '#contracts/datapath/datapath-options.js';
import type { FlippedRuleNames } from '#contracts/datapath/event-source.js';
import type { DecidedHit } from '#contracts/datapath/grant-messages.js';
import { type RenamedPolicing, renamedSentence } from '#contracts/datapath/renamed-interface.js';
import type { SpliceOffload } from '#contracts/datapath/splice-offload.js';
import type { DestinationTranslation } from '#contracts/datapath/translation.js';
import { STORED, type Standing } from '#contracts/datapath/unconfirmed.js';
import type { Arrival } from '#contracts/policy/explain-facts.js';
import { type Address, isOfIpv4, type Packet } from '#contracts/policy/policy-model.js';
import type { Program } from '#contracts/policy/program.js';
import type { Proof, ProofSamples } from '#contracts/policy/proof-types.js';
import { SLOT_COUNT } from '#dataplane/abi/active-word.js';
import type { Slots } from '#dataplane/activate/slots.js';
import { notEthernet } from '#dataplane/attach/interface-hooks.js';
import { isEthernet } from '#dataplane/attach/interfaces/interfaces.js';
import { renamedAmong } from '#dataplane/attach/interfaces/policed-names.js';
import { probe } from '#dataplane/attach/probe.js';
import { refuseOtherNodes } from '#dataplane/attach/weir-hooks.js';
import { datapathStats } from '#dataplane/flows/datapath-stats.js';
import { GroupCounters } from '#dataplane/flows/hits/group-counters.js';
import type { FlowsCut } from '#dataplane/flows/traffic-statistics.js';
import { Lines } from '#dataplane/image/cache-lines.js';
import { layout } from '#dataplane/image/program-image.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { spliceOffloadOf } from '#dataplane/object/lent-objects.js';
import { refusalOf } from '#dataplane/object/loaded-object.js';
import { inForceAt } from '#dataplane/object/map-set.js';
import { arrivalOf } from '#dataplane/review/arrival.js';
import { destinationTranslationOf, withTranslations } from '#dataplane/translation/shown-translation.js';
import { Upgrade } from '#dataplane/upgrade/upgrade.js';
import type { KernelNotifications } from '#dataplane/watch/kernel-notifications.js';
import type { KernelWatchMaps } from '#dataplane/watch/kernel-watch.js';
import { Descriptors } from '#libc/descriptors.js';
import { InterfacePolicing } from './interface-policing.js';
import { KernelChanges } from './kernel-changes.js';
import { type KernelParts, kernelParts } from './kernel-parts.js';
import type { MemberChanges } from './member-changes.js';
import { OpenDatapath } from './open-datapath.js';
import { mismatchOf, proofBy } from './proof.js';
import { flipProgram, stageProgram } from './staging.js';

/** Implements the operations of `Datapath` in the calling thread. Each call may block. */
export class LocalDatapath {
  readonly #options: DatapathOptions;
  readonly #kernel: KernelParts;
  readonly #changes: KernelChanges;
  readonly #policing: InterfacePolicing;
  /**
   * Buffer for the image of a compiled policy. Every image uses the same buffer, because allocating the
   * memory takes more time than filling it.
   */
  readonly #lines = new Lines();
  readonly #groupCounters: GroupCounters | undefined;
  /** The open datapath; undefined before `open` and after `close`. */
  #open: OpenDatapath | undefined;
  #eventsWanted: EventsWanted = NO_EVENTS;

  /**
   * Long-running methods call this function between their steps. The datapath thread replaces it by a
   * function that serves urgent requests, such as grants (permissions for addresses that DNS resolved).
   */
  yieldToRequests: () => void = () => {};

  /**
   * `open` calls this function with the policy that it finds in force, before it loads the BPF programs.
   * Until the next `flip`, the kernel enforces this policy. Null also if the mark mask has changed.
   */
  found: (inForce: Adoption['inForce']) => void = () => {};

  /**
   * `flip` calls this function with the rule names of a policy before it puts the policy in force. So
   * consumers of events know the names before the first event of the policy.
   */
  announce: (placed: FlippedRuleNames) => void = () => {};

  /**
   * Creates the datapath. `descriptors` receives the file descriptors that the parent thread must close if
   * this thread dies.
   */
  constructor(options: DatapathOptions, descriptors = new Descriptors()) {
    this.#options = options;
    this.#kernel = kernelParts(options, descriptors);
    this.#changes = new KernelChanges(this.#kernel, options);
    this.#policing = new InterfacePolicing(this.#kernel, this.#changes, options);
    const { countedGroups = 0 } = options;
    if (countedGroups > 0) this.#groupCounters = new GroupCounters(countedGroups);
  }

  probe(): Missing[] {
    return probe(this.#kernel.objectOptions.objectPath, this.#kernel.pins.path);
  }

  check(): MachineCheck {
    const missing = this.probe();
    if (missing.length > 0) return { missing, faults: [], warnings: [] };
    const { objectOptions, forwarding, hooks, pins } = this.#kernel;
    const refused = refusalOf(objectOptions, forwarding.translates('ipv4'));
    if (refused !== null) {
      const sentence = `The kernel refuses the programs of the datapath: ${refused}.`;
      return { missing: [{ what: 'programs', sentence }], faults: [], warnings: [] };
    }
    // `weir init` runs this check as the user of the systemd unit. This user may read the pins of root only
    // after the unit has started.
    if (pins.hasReadableNames()) hooks.load();
    const { faults, warnings } = this.review();
    const { all, policed } = hooks.interfaces();
    const renamed = renamedAmong(policed);
    const absent = hooks.names.filter(
      (name) =>
        !name.endsWith('*') &&
        !all.some((found) => found.name === name) &&
        !renamed.some(({ renamedFrom }) => renamedFrom === name),
    );
    const noInterface = [
      ...(absent.length === 0 ? [] : [`no interface has this name: ${absent.join(', ')}`]),
      ...renamed.map(({ renamedFrom, name }) => renamedSentence({ from: renamedFrom, to: name })),
    ];
    const unsupported = policed.flatMap(({ name }) => (isEthernet(name) ? [] : notEthernet(name)));
    return { missing, faults: [...noInterface, ...unsupported, ...faults], warnings };
  }

  open(): Adoption {
    this.close();
    const { pins, ownership, hooks, guard, forwarding, translation } = this.#kernel;
    ownership.acquire(() => pins.prepare());
    let upgrade: Upgrade | undefined;
    try {
      pins.refuseOthers();
      hooks.load();
      refuseOtherNodes(pins.path, hooks.interfaces().policed, hooks.attachedPrograms());
      guard.acceptEarlier();
      // With another mark mask, the programs on the hooks do not recognize the packets of this process's
      // service plane (TLS and HTTP inspection).
      this.found(guard.hasThisMask() ? inForceAt(pins.path) : null);
      translation.adopt();
      upgrade = this.#createUpgrade();
      this.#open = new OpenDatapath(upgrade, this.#groupCounters);
    } catch (error) {
      upgrade?.unpin();
      upgrade?.close();
      this.close();
      throw error;
    }
    const { loaded, adopted } = upgrade;
    if (upgrade.lacksIpv6Flows) this.#beginPickup(loaded.slots);
    loaded.slots.setEventsWanted(this.#eventsWanted);
    forwarding.begin(loaded.slots);
    loaded.routes.look();
    this.#changes.lookAtForwarding(upgrade);
    const inForce = upgrade.inForce();
    return {
      base: upgrade.base(),
      adopted,
      inForce:
        inForce === null
          ? null
          : { generation: inForce.generation, imageSha256: inForce.imageSha256, sinceMs: inForce.sinceMs },
    };
  }

  #createUpgrade(): Upgrade {
    const { objectOptions, pins } = this.#kernel;
    return new Upgrade(objectOptions, this.#options.programCapacity, pins.path);
  }

  attach(): Attachment[] {
    return this.#policing.attach(this.#opened());
  }

  /**
   * Replaces the names of the policed interfaces (`InterfacePolicing.police`). If the datapath is not open,
   * returns null, and the next `open` uses the names.
   */
  police(interfaces: readonly string[], renamed: RenamedPolicing): Attachment[] | null {
    if (this.#open !== undefined) return this.#policing.police(this.#open, interfaces, renamed);
    const { hooks } = this.#kernel;
    this.#policing.name(interfaces);
    // Change the record of the policed interfaces, because the next `open` reads this record.
    hooks.load();
    if (renamed === 'release') hooks.releaseRenamed();
    if (renamed === 'restore') hooks.restoreRenamed();
    return null;
  }

  review(): Review {
    return this.#changes.review();
  }

  stage(program: Program, generation: number, standing: Standing = STORED): Staged {
    const open = this.#opened();
    const { yieldToRequests } = this;
    this.#settleBase(open, generation, standing);
    const switchHooks = (): void => this.#policing.switchHooks(open);
    const image = layout(program, this.#lines);
    yieldToRequests();
    // During a takeover from an earlier datapath, the activation of this policy takes effect on all hooks at
    // the same time. So every hook must have the new BPF programs before.
    if (open.upgrade.awaitsFlip) switchHooks();
    let placement = open.trafficStatistics.find(program.ruleNames);
    yieldToRequests();
    const { usedSlots, count } = open.loaded.slots;
    const slotCount = usedSlots.length < SLOT_COUNT.usual ? count : SLOT_COUNT.withBase;
    const need = { slots: slotCount, lines: image.lines, ...open.trafficStatistics.need(placement) };
    if (open.grow(need, switchHooks)) placement = open.trafficStatistics.find(program.ruleNames);
    const { trafficStatistics } = open;
    const { slots, grants, members, options } = open.loaded;
    const staged = { slots, grants, members, trafficStatistics, yieldToRequests };
    stageProgram(staged, program, generation, { image, placement });
    yieldToRequests();
    return { lines: image.lines, capacityLines: options.slotLines };
  }

  prove(samples: ProofSamples): Proof {
    const { loaded } = this.#opened();
    const { slots } = loaded;
    if (!slots.staged) throw new Error('no compiled policy is staged: call `stage` first');
    const mismatch = mismatchOf(loaded, samples, this.yieldToRequests);
    if (mismatch !== null) {
      slots.unstage();
      throw new ProofFailed(mismatch);
    }
    return proofBy(samples);
  }

  flip({ unconfirmed }: Standing = STORED): Flipped {
    const open = this.#opened();
    const { upgrade, trafficStatistics } = open;
    const { slots, grants, members } = upgrade.loaded;
    const isTakeover = upgrade.awaitsFlip;
    if (slots.epoch === 0 && !isTakeover) this.#beginPickup(slots);
    const { staged } = trafficStatistics.ruleNameHistory;
    if (unconfirmed === null) trafficStatistics.ruleNameHistory.forgetBase();
    else trafficStatistics.ruleNameHistory.keepBase();
    slots.prepareFlip(unconfirmed);
    this.#noticeRevert(open);
    if (staged !== undefined) this.announce({ ...staged, epoch: slots.nextEpoch });
    const flipped = flipProgram({ slots, grants, members, trafficStatistics }, upgrade.enforced());
    if (isTakeover) this.#policing.completeTakeover(open);
    return flipped;
  }

  /** Begins the time in which a TCP packet without SYN can open a flow. The policy decides it like a SYN. */
  #beginPickup(slots: Slots): void {
    slots.setPickupUntil(process.hrtime.bigint() + BigInt(this.#options.pickupMs) * 1_000_000n);
  }

  /** See `Datapath.confirm`. */
  confirm(generation: number): void {
    const { slots } = this.#opened().loaded;
    const base = slots.keptBase();
    if (base?.generation === generation && !base.hasReverted) slots.releaseBase();
  }

  /**
   * Must be called before a policy is staged. Depending on the policy, reverts to the base (last confirmed
   * policy), removes it, or throws if it is missing.
   */
  #settleBase(open: OpenDatapath, generation: number, { isStored, unconfirmed }: Standing): void {
    const { slots } = open.loaded;
    if (isStored && unconfirmed !== null) slots.requireBase(unconfirmed);
    else if (isStored && slots.keptBase()?.generation === generation) slots.revert();
    else if (isStored) slots.releaseBase();
    this.#noticeRevert(open);
  }

  /**
   * Updates the state of this thread if the base of an unconfirmed policy has come in force without a flip.
   */
  #noticeRevert({ loaded: { slots }, trafficStatistics }: OpenDatapath): void {
    if (!slots.noticeRevert()) return;
    const names = trafficStatistics.baseInForce(slots.epoch, slots.enforced()?.generation ?? 0);
    if (names !== undefined) this.announce(names);
  }

  /**
   * Waits for grace periods and flushes counters after a policy was put in force. Otherwise the next `stage`
   * would have to do this while a client waits for its policy write.
   */
  flushAfterFlip(): void {
    try {
      this.#open?.trafficStatistics.flushIdleSlot();
      this.#open?.loaded.routes.look();
    } catch {
      // Ignore the error: the next `stage` does the same work and reports the error.
    }
  }

  unstage(): void {
    const { loaded, trafficStatistics } = this.#opened();
    loaded.slots.unstage();
    trafficStatistics.ruleNameHistory.unstage();
  }

  hits(query: HitQuery): HitReport | null {
    return this.#opened().trafficStatistics.hits(query);
  }

  groupTraffic(): GroupTraffic | null {
    return this.#opened().trafficStatistics.groupTraffic();
  }

  /** Adds decisions to the hits of their rules. Ignores them while the datapath is not open. */
  addHits(decided: readonly DecidedHit[]): void {
    this.#open?.trafficStatistics.addHits(decided);
  }

  async flows(query: FlowQuery): Promise<FlowPage> {
    const page = await this.#opened().trafficStatistics.flows(query, this.#options.timeoutsMs);
    return this.#open?.loaded.slots.translates('ipv4') === true ? withTranslations(page) : page;
  }

  cutFlows(query: FlowQuery): Promise<FlowsCut> {
    return this.#opened().trafficStatistics.cutFlows(query);
  }

  grant(grants: readonly Grant[]): { readonly refused: number } {
    return { refused: this.#opened().loaded.grants.add(grants, process.hrtime.bigint()) };
  }

  revoke(grants: readonly Pick<Grant, 'pattern' | 'addresses'>[]): void {
    this.#opened().loaded.grants.remove(grants);
  }

  /** The object that applies changes of members (addresses with an owner), also while another method runs. */
  get memberChanges(): MemberChanges {
    return this.#opened().memberChanges;
  }

  /**
   * Returns the texts of the hostname patterns for which an address has a grant; null if the datapath is not
   * open. If `expiredToo` is true, expired grants that are still stored count too.
   */
  grantedFor(address: Address, expiredToo: boolean): readonly string[] | null {
    return this.#open?.loaded.grants.patternsOf(address, expiredToo ? 0n : process.hrtime.bigint()) ?? null;
  }

  spliceOffload(): SpliceOffload {
    const { loaded, lent } = this.#opened();
    return spliceOffloadOf(loaded, lent);
  }

  arrival(source: Address): Arrival {
    return arrivalOf(source, this.#kernel.hooks.interfaces().policed);
  }

  destinationTranslation(packet: Packet): DestinationTranslation | null {
    if (!this.#opened().loaded.slots.translates('ipv4') || !isOfIpv4(packet)) return null;
    return destinationTranslationOf(packet, this.#options.translated);
  }

  learned(): readonly Learned[] {
    return this.#opened().loaded.grants.learned(process.hrtime.bigint());
  }

  /**
   * Removes expired grants (addresses learned from DNS), so that the grant table has room for new ones. The
   * policy does not depend on this: the BPF program checks the expiry of each grant.
   */
  sweepGrants(): void {
    const grants = this.#open?.loaded.grants;
    grants?.sweep(process.hrtime.bigint(), () => this.yieldToRequests());
    if (grants?.isGraceDue !== true) return;
    awaitGracePeriod();
    grants.afterGrace();
  }

  stats(): DatapathStats {
    const { loaded, trafficStatistics } = this.#opened();
    return datapathStats(loaded, trafficStatistics, this.#kernel.forwarding.now);
  }

  /** Selects the kinds of events that are reported, also by a datapath that is opened later. */
  setEventsWanted(wanted: EventsWanted): void {
    this.#eventsWanted = wanted;
    this.#open?.loaded.slots.setEventsWanted(wanted);
  }

  kernelWatchMaps(): KernelWatchMaps {
    const { loaded, lent } = this.#opened();
    return lent.kernelWatchMaps(loaded.object);
  }

  /** Returns the rule names of the former policies and, as the last element, of the policy in force. */
  placed(): readonly FlippedRuleNames[] {
    return this.#opened().trafficStatistics.ruleNameHistory.placed;
  }

  /** Reads the given kinds of kernel state, and returns the changes since the last call. */
  look(at: KernelNotifications = { links: true, guard: true, thirdPartyHooks: true }): DatapathChange[] {
    return this.#open === undefined ? [] : this.#changes.look(this.#open, at);
  }

  close(): void {
    const { forwarding, ownership } = this.#kernel;
    if (this.#open !== undefined) forwarding.end(this.#open.loaded.slots);
    forwarding.close();
    this.#open?.close();
    this.#open = undefined;
    ownership.release();
  }

  #opened(): OpenDatapath {
    if (this.#open === undefined) throw new Error('the datapath is not open');
    return this.#open;
  }
}
