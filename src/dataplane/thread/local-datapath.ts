import {
  type Adoption,
  type Attachment,
  type DatapathChange,
  type DatapathStats,
  type EventsWanted,
  type FlowPage,
  type FlowQuery,
  type Grant,
  type HitQuery,
  type HitReport,
  type Learned,
  type Missing,
  NO_EVENTS,
  ProofFailed,
  type Review,
  type Staged,
} from '#contracts/datapath.js';
import type { DatapathOptions } from '#contracts/datapath-options.js';
import type { PlacedRoster } from '#contracts/event-source.js';
import type { Arrival } from '#contracts/explain-facts.js';
import type { GrantAccess } from '#contracts/grant-access.js';
import type { DecidedHit } from '#contracts/grant-messages.js';
import type { Program } from '#contracts/program.js';
import type { Proof, ProofSample } from '#contracts/proof-types.js';
import type { JoinPoint } from '#contracts/splice-offload.js';
import { Hooks } from '#dataplane/attach/hooks.js';
import type { Interface } from '#dataplane/attach/interfaces.js';
import { Ownership } from '#dataplane/attach/ownership.js';
import { Pins } from '#dataplane/attach/pins.js';
import { probe } from '#dataplane/attach/probe.js';
import { refuseForeign } from '#dataplane/attach/refuse-foreign.js';
import { Watcher } from '#dataplane/attach/watcher.js';
import { datapathStats } from '#dataplane/flows/datapath-stats.js';
import { Accounts, type FlowsCut } from '#dataplane/flows/traffic-statistics.js';
import { Forwarding } from '#dataplane/forwarding/forwarding.js';
import { Gate } from '#dataplane/grants/gate.js';
import { Guard } from '#dataplane/guard/nftables-guard.js';
import { Lines } from '#dataplane/image/cache-lines.js';
import { layout } from '#dataplane/image/program-image.js';
import { programId } from '#dataplane/loader/bpf-fd.js';
import type { BpfObject } from '#dataplane/loader/bpf-object.js';
import { DIRECTIONS, type Direction } from '#dataplane/loader/direction.js';
import { awaitGracePeriod } from '#dataplane/loader/grace-period.js';
import { LentObjects } from '#dataplane/object/lent-objects.js';
import { joinPointOf } from '#dataplane/object/splice-offload.js';
import { arrivalOf } from '#dataplane/review/arrival.js';
import { review } from '#dataplane/review/review.js';
import { diversionStands, makeDiversion, removeDiversion } from '#dataplane/routes/divert.js';
import type { FixedOptions } from '#dataplane/upgrade/successor.js';
import { Succession } from '#dataplane/upgrade/upgrade.js';
import type { News } from '#dataplane/watch/kernel-notifications.js';
import type { EarMaps } from '#dataplane/watch/kernel-watch.js';
import { KernelFailure } from '#libc/kernel-failure.js';
import { objectOptions } from './object-options.js';
import { flipProgram, stageProgram } from './staging.js';

/** The datapath port, done in the calling thread: every call may block. The worker runs one. */
export class LocalDatapath {
  readonly #options: DatapathOptions;
  readonly #objectOptions: FixedOptions;
  readonly #pins: Pins;
  readonly #ownership: Ownership;
  readonly #hooks: Hooks;
  readonly #guard: Guard;
  readonly #forwarding: Forwarding;
  readonly #watcher = new Watcher();
  /** Kept, since new memory costs more than what is written to it. */
  readonly #lines = new Lines();
  /** Changes that `attach` found by itself. */
  #untold: DatapathChange[] = [];
  #succession: Succession | undefined;
  #accounts: Accounts | undefined;
  #lent: LentObjects | undefined;
  #eventsWanted: EventsWanted = NO_EVENTS;

  /** Called in the middle of long work, for what cannot wait until it is done: grants may be made. */
  breathe: () => void = () => {};

  /** Called with whoever judges from now on, before the first packet is judged by them. */
  announce: (placed: PlacedRoster) => void = () => {};

  /** Other threads write grants by `grantGate`. */
  constructor(options: DatapathOptions, grantGate = new Gate()) {
    this.#options = options;
    this.#objectOptions = objectOptions(options, grantGate);
    this.#pins = new Pins(options.pinPath);
    this.#ownership = new Ownership(options.pinPath);
    this.#hooks = new Hooks(options, this.#pins);
    this.#guard = new Guard(options);
    this.#forwarding = new Forwarding(options, this.#hooks, this.#guard);
  }

  probe(): Missing[] {
    return probe(this.#objectOptions.objectPath, this.#pins.path);
  }

  open(): Adoption {
    this.close();
    this.#ownership.take(() => this.#pins.prepare());
    try {
      this.#pins.refuseOthers();
      refuseForeign(this.#pins.path, this.#hooks.interfaces().policed, this.#hooks.heldPrograms());
      this.#guard.acceptEarlier();
      this.#succession = this.#succeed();
    } catch (error) {
      this.close();
      throw error;
    }
    const { loaded, adopted } = this.#succession;
    this.#lent = new LentObjects(loaded.object);
    this.#accounts = new Accounts(loaded.object, loaded.slots);
    loaded.slots.setEventsWanted(this.#eventsWanted);
    this.#forwarding.begin(loaded.slots);
    loaded.routes.look();
    this.#untold.push(...this.#forwarding.look(loaded.slots));
    const inForce = this.#succession.inForce();
    return {
      adopted,
      inForce: inForce === null ? null : { generation: inForce.generation, imageSha256: inForce.imageSha256 },
    };
  }

  #succeed(): Succession {
    return new Succession(
      this.#objectOptions,
      this.#options.programCapacity,
      this.#pins.path,
      this.#hooks.heldPrograms(),
    );
  }

  attach(): Attachment[] {
    const succession = this.#opened();
    // The folders of the pins may have been removed, and with them the links and the pins of the maps.
    this.#ownership.take(() => this.#pins.prepare());
    succession.restorePins();
    // The guard first: a program that is not there yet must be closed, not open.
    this.#guard.make();
    if (this.#diverts()) makeDiversion(this.#options.markMask);
    else removeDiversion();
    const interfaces = this.#hooks.interfaces();
    const { policed } = interfaces;
    const { attachments, failures } = this.#putOnHooks(policed);
    this.#hooks.prune();
    this.#untold.push(...this.#watcher.lookAtNames(interfaces));
    this.#watcher.attached(policed);
    if (this.#isOnHooks(policed)) succession.advance(() => this.#switchHooks());
    if (!succession.awaitsFlip) this.#guardOwnOnly();
    this.#untold.push(...this.#forwarding.look(succession.loaded.slots));
    if (failures[0] !== undefined) throw failures[0];
    return attachments;
  }

  /** Remembers what it answers: `look` tells when that has changed. */
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
      diverts: this.#diverts(),
    });
  }

  stage(program: Program, generation: number): Staged {
    const succession = this.#opened();
    const image = layout(program, this.#lines);
    this.breathe();
    // A flip that changes hands must find every hook ready for it.
    if (succession.awaitsFlip) this.#switchHooks();
    const accounts = this.#accountsOf();
    let placement = accounts.find(program.roster);
    this.breathe();
    const need = { lines: image.lines, ...accounts.need(placement) };
    if (succession.grow(need, () => this.#switchHooks())) {
      this.#renewAccounts();
      placement = this.#accountsOf().find(program.roster);
    }
    const { slots, grants, options } = succession.loaded;
    const staged = { slots, grants, accounts: this.#accountsOf() };
    stageProgram(staged, program, generation, { image, placement });
    this.breathe();
    return { lines: image.lines, capacityLines: options.slotLines };
  }

  prove(sample: ProofSample): Proof {
    const { slots, prover } = this.#opened().loaded;
    if (!slots.staged) throw new Error('nothing is staged');
    const mismatch = prover.mismatch(sample, slots.idleSlot, this.breathe);
    if (mismatch !== null) {
      slots.unstage();
      throw new ProofFailed(mismatch);
    }
    const { classes, complete, expected } = sample;
    return { classes, checked: expected.length, complete };
  }

  flip(): { readonly epoch: number } {
    const succession = this.#opened();
    const { slots, grants } = succession.loaded;
    const changesHands = succession.awaitsFlip;
    if (slots.epoch === 0 && !changesHands) {
      slots.setPickupUntil(process.hrtime.bigint() + BigInt(this.#options.pickupMs) * 1_000_000n);
    }
    const accounts = this.#accountsOf();
    const { staged } = accounts.rosters;
    if (staged !== undefined) this.announce({ ...staged, epoch: slots.nextEpoch });
    const epoch = flipProgram({ slots, grants, accounts });
    if (changesHands) {
      succession.complete(() => this.#putOnHooks(this.#hooks.interfaces().policed));
      this.#guardOwnOnly();
    }
    return { epoch };
  }

  /** Waits for what the next `stage` would wait for. */
  settle(): void {
    try {
      this.#accounts?.settle();
      this.#succession?.loaded.routes.look();
    } catch {
      // The next `stage` tries again, and says what is wrong.
    }
  }

  unstage(): void {
    this.#opened().loaded.slots.unstage();
    this.#accountsOf().rosters.unstage();
  }

  hits(query: HitQuery): HitReport | null {
    return this.#accountsOf().hits(query);
  }

  /** Decisions that are made while no port is open are not counted. */
  addHits(decided: readonly DecidedHit[]): void {
    this.#accounts?.addHits(decided);
  }

  flows(query: FlowQuery): Promise<FlowPage> {
    return this.#accountsOf().flows(query, this.#options.timeoutsMs);
  }

  cutFlows(query: FlowQuery): Promise<FlowsCut> {
    return this.#accountsOf().cutFlows(query);
  }

  grant(grants: readonly Grant[]): { readonly refused: number } {
    return { refused: this.#opened().loaded.grants.add(grants, process.hrtime.bigint()) };
  }

  revoke(grants: readonly Pick<Grant, 'pattern' | 'addresses'>[]): void {
    this.#opened().loaded.grants.remove(grants);
  }

  /** Texts of the patterns that an address is granted for; null where nothing is open. */
  grantedFor(address: number, expiredToo: boolean): readonly string[] | null {
    return this.#succession?.loaded.grants.patternsOf(address, expiredToo ? 0n : process.hrtime.bigint()) ?? null;
  }

  /** Null where nothing is open. */
  grantAccess(): GrantAccess | null {
    if (this.#succession === undefined || this.#lent === undefined) return null;
    const { grants, patterns } = this.#lent;
    return { ...this.#succession.loaded.grants.access, grants, patterns };
  }

  joinPoint(): JoinPoint {
    const { loaded } = this.#opened();
    return joinPointOf(loaded, this.#lentOf());
  }

  arrival(source: number): Arrival {
    return arrivalOf(source, this.#hooks.interfaces().policed);
  }

  learned(): readonly Learned[] {
    return this.#opened().loaded.grants.learned(process.hrtime.bigint());
  }

  /** Makes room among the learned addresses. Expiry itself is the kernel's. */
  sweepGrants(): void {
    const grants = this.#succession?.loaded.grants;
    grants?.sweep(process.hrtime.bigint(), () => this.breathe());
    if (grants?.isGraceDue !== true) return;
    awaitGracePeriod();
    grants.afterGrace();
  }

  stats(): DatapathStats {
    return datapathStats(this.#opened().loaded, this.#accountsOf(), this.#forwarding.now);
  }

  /** Holds from now on, also for what is opened later. */
  setEventsWanted(wanted: EventsWanted): void {
    this.#eventsWanted = wanted;
    this.#succession?.loaded.slots.setEventsWanted(wanted);
  }

  earMaps(): EarMaps {
    return this.#lentOf().earMaps(this.#opened().loaded.object);
  }

  /** Whoever judges now, and whoever did, the last one last. */
  placed(): readonly PlacedRoster[] {
    return this.#accountsOf().rosters.placed;
  }

  /** What changed since the last look, as far as it may have. */
  look(at: News = { links: true, guard: true, others: true }): DatapathChange[] {
    if (this.#succession === undefined) return [];
    this.#succession.loaded.routes.look();
    // One by one: a look that throws must not lose what was found before, since the watcher tells each loss once.
    if (at.links) this.#lookAtInterfaces(this.#succession);
    if (at.links || at.others) this.#lookAtReview();
    this.#untold.push(...this.#watcher.lookAtRefusals(this.#accountsOf().refusing()));
    if (at.links) this.#untold.push(...this.#watcher.lookAtPins(this.#succession.lostPins()));
    if (at.guard) this.#untold.push(...this.#watcher.lookAtGuard(this.#guard.stands()));
    if (at.others) {
      this.#untold.push(...this.#forwarding.look(this.#succession.loaded.slots));
      if (this.#diverts()) {
        this.#untold.push(...this.#watcher.lookAtDiversion(diversionStands(this.#options.markMask)));
      }
    }
    const untold = this.#untold;
    this.#untold = [];
    return untold;
  }

  close(): void {
    this.#accounts?.close();
    this.#accounts = undefined;
    this.#lent?.close();
    this.#lent = undefined;
    if (this.#succession !== undefined) this.#forwarding.end(this.#succession.loaded.slots);
    this.#forwarding.close();
    this.#succession?.close();
    this.#succession = undefined;
    this.#ownership.release();
  }

  /** Whether some packets are delivered to the node, whatever address they are for. */
  #diverts(): boolean {
    return this.#options.divertDns === true || this.#options.servicePlane != null;
  }

  #opened(): Succession {
    if (this.#succession === undefined) throw new Error('the datapath is not open');
    return this.#succession;
  }

  #lentOf(): LentObjects {
    if (this.#lent === undefined) throw new Error('the datapath is not open');
    return this.#lent;
  }

  #accountsOf(): Accounts {
    if (this.#accounts === undefined) throw new Error('the datapath is not open');
    return this.#accounts;
  }

  /** Tables have grown, and stand elsewhere. */
  #renewAccounts(): void {
    const { object, slots } = this.#opened().loaded;
    const { rosters } = this.#accountsOf();
    this.#accounts?.close();
    this.#accounts = new Accounts(object, slots, rosters);
  }

  #putOnHooks(policed: readonly Interface[]): { attachments: Attachment[]; failures: Error[] } {
    const { programs } = this.#opened();
    const fds = { ingress: programs.programFd('weir_ingress'), egress: programs.programFd('weir_egress') };
    const attachments: Attachment[] = [];
    const failures: Error[] = [];
    for (const found of policed) {
      try {
        attachments.push(this.#hooks.attach(found, fds));
      } catch (error) {
        // The others are judged all the same; what came in by this one, the guard stops.
        if (this.#hooks.isThere(found)) failures.push(error as Error);
      }
    }
    return { attachments, failures };
  }

  /** Whether no hook holds anything else. */
  #isOnHooks(policed: readonly Interface[]): boolean {
    const own = programIds(this.#opened().programs);
    return policed.every((found) =>
      DIRECTIONS.every((direction) => {
        const held = this.#hooks.held(found, direction);
        return held === undefined || held.programId === own[direction];
      }),
    );
  }

  /** Programs that marked otherwise judge no more. */
  #guardOwnOnly(): void {
    this.#guard.acceptOwnOnly();
    this.#guard.make();
  }

  #switchHooks(): void {
    const { policed } = this.#hooks.interfaces();
    const { failures } = this.#putOnHooks(policed);
    if (!this.#isOnHooks(policed)) throw failures[0] ?? new Error('a hook went on holding another program');
  }

  #lookAtReview(): void {
    try {
      this.#untold.push(...this.#watcher.lookAtReview(this.#review()));
    } catch (error) {
      // Lists that change all the time while they are read. They are read again by the next look.
      if (!(error instanceof KernelFailure) || error.code !== 'EINTR') throw error;
    }
  }

  #lookAtInterfaces({ programs }: Succession): void {
    const own = programIds(programs);
    const directions = this.#hooks.directions();
    const interfaces = this.#hooks.interfaces();
    const isHeld = (found: Interface): boolean =>
      directions.every((direction) => this.#hooks.held(found, direction)?.programId === own[direction]);
    this.#untold.push(...this.#watcher.lookAtNames(interfaces));
    this.#untold.push(...this.#watcher.lookAtLinks(interfaces.policed, isHeld));
  }
}

function programIds(object: BpfObject): Readonly<Record<Direction, number>> {
  return {
    ingress: programId(object.programFd('weir_ingress')),
    egress: programId(object.programFd('weir_egress')),
  };
}
