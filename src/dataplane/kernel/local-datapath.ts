import {
  type Adoption,
  type Attachment,
  type Counter,
  type DatapathChange,
  type DatapathStats,
  type FlowPage,
  type FlowQuery,
  type Grant,
  type HitQuery,
  type HitReport,
  type Learned,
  type Missing,
  ProofFailed,
  type Staged,
} from '#dataplane/datapath.js';
import { COUNTER_INDEX, DROP_REASON } from '#dataplane/program/numbers.js';
import type { Program } from '#policy/program.js';
import type { Proof, ProofSample } from '#policy/proof.js';
import { Accounts, type FlowsCut } from './accounts.js';
import { programId } from './bpf-fd.js';
import { builtObject } from './built.js';
import { readCounters } from './counters.js';
import type { EarMaps } from './ear.js';
import { fibFlags } from './fib-flags.js';
import { awaitGracePeriod } from './grace-period.js';
import { Guard } from './guard.js';
import { Hooks } from './hooks.js';
import type { Interface } from './interfaces.js';
import { type LoadedObject, loadObject } from './loaded-object.js';
import type { News } from './news.js';
import {
  cacheLinesFor,
  type DatapathOptions,
  DEFAULT_DENY_EVENTS,
  DEFAULT_FLOW_EVENTS,
  DEFAULT_HITS,
  DEFAULT_RANKS,
  DEFAULT_SLOT_LINES,
} from './options.js';
import { Ownership } from './ownership.js';
import { Pins } from './pins.js';
import { probe } from './probe.js';
import { flipProgram, stageProgram } from './staging.js';
import { Watcher } from './watcher.js';

/** The datapath port, done in the calling thread: every call may block. The worker runs one. */
export class LocalDatapath {
  readonly #options: DatapathOptions;
  readonly #slotLines: number;
  readonly #objectPath: string;
  readonly #pins: Pins;
  readonly #ownership: Ownership;
  readonly #hooks: Hooks;
  readonly #guard: Guard;
  readonly #watcher = new Watcher();
  /** Changes that `attach` found by itself. */
  #untold: DatapathChange[] = [];
  #loaded: (LoadedObject & { readonly accounts: Accounts }) | undefined;
  #eventsWanted = false;
  /** An older program of another layout goes on judging until this one has a policy. */
  #handoverDue = false;

  constructor(options: DatapathOptions) {
    this.#options = options;
    this.#slotLines = options.slotLines ?? DEFAULT_SLOT_LINES;
    this.#objectPath = options.objectPath ?? builtObject;
    this.#pins = new Pins(options.pinPath);
    this.#ownership = new Ownership(options.pinPath);
    this.#hooks = new Hooks(options, this.#pins);
    this.#guard = new Guard(options.interfaces, options.markMask);
  }

  probe(): Missing[] {
    return probe(this.#objectPath);
  }

  open(): Adoption {
    this.close();
    this.#pins.prepare();
    this.#ownership.take();
    this.#pins.refuseOthers();
    const loaded = loadObject(
      {
        objectPath: this.#objectPath,
        flowCapacity: this.#options.flowCapacity,
        halfOpenCapacity: this.#options.halfOpenCapacity,
        cacheLines: cacheLinesFor(this.#options.flowCapacity),
        grantCapacity: this.#options.grantCapacity,
        slotLines: this.#slotLines,
        rankCapacity: DEFAULT_RANKS,
        hitCapacity: DEFAULT_HITS,
        denyEvents: DEFAULT_DENY_EVENTS,
        flowEvents: DEFAULT_FLOW_EVENTS,
        timeoutsMs: this.#options.timeoutsMs,
        policeLocal: this.#options.policeLocal,
        direct: this.#options.forwarding === 'direct',
        fibFlags: fibFlags(),
        markMask: this.#options.markMask,
        reversePath: this.#options.reversePath,
        passNonIpv4: this.#options.nonIpv4 === 'pass',
        judgeAll: false,
        traceWord: false,
      },
      this.#pins,
    );
    const { adopted, slots } = loaded;
    this.#loaded = { ...loaded, accounts: new Accounts(loaded.object, slots) };
    slots.setEventsWanted(this.#eventsWanted);
    const inForce = adopted ? slots.inForce() : null;
    return {
      adopted,
      inForce: inForce === null ? null : { generation: inForce.generation, imageSha256: inForce.imageSha256 },
    };
  }

  attach(): Attachment[] {
    const { object, slots } = this.#opened();
    const programs = { ingress: object.programFd('weir_ingress'), egress: object.programFd('weir_egress') };
    // Somebody may have removed the folder of the links, and with it the links.
    this.#pins.prepare();
    // The guard first: a program that is not there yet must be closed, not open.
    this.#guard.make();
    const interfaces = this.#hooks.interfaces();
    const { policed } = interfaces;
    const attachments: Attachment[] = [];
    const failures: unknown[] = [];
    this.#handoverDue = false;
    for (const found of policed) {
      try {
        const held = this.#hooks.held(found, 'ingress');
        if (held !== undefined && held.programId !== programId(programs.ingress) && slots.epoch === 0) {
          this.#handoverDue = true;
          attachments.push({ interface: found.name, ifindex: found.ifindex, by: held.by });
        } else {
          attachments.push(this.#hooks.attach(found, programs));
        }
      } catch (error) {
        // The others are judged all the same; what came in by this one, the guard stops.
        if (this.#hooks.isThere(found)) failures.push(error);
      }
    }
    this.#hooks.prune();
    this.#untold.push(...this.#watcher.lookAtNames(interfaces));
    this.#watcher.attached(policed);
    if (failures.length > 0) throw failures[0];
    if (!this.#handoverDue) this.#removeOtherLayouts();
    return attachments;
  }

  stage(program: Program, generation: number): Staged {
    const { image, imageSha256 } = stageProgram(this.#opened(), program, generation);
    return { imageSha256, lines: image.lines, capacityLines: this.#slotLines };
  }

  prove(sample: ProofSample): Proof {
    const { slots, prover } = this.#opened();
    if (!slots.staged) throw new Error('nothing is staged');
    const mismatch = prover.mismatch(sample, slots.idleSlot);
    if (mismatch !== null) {
      slots.unstage();
      throw new ProofFailed(mismatch);
    }
    const { classes, complete, expected } = sample;
    return { classes, checked: expected.length, complete };
  }

  flip(): { readonly epoch: number } {
    const loaded = this.#opened();
    const { slots } = loaded;
    if (slots.epoch === 0) {
      slots.setPickupUntil(process.hrtime.bigint() + BigInt(this.#options.pickupMs) * 1_000_000n);
    }
    const epoch = flipProgram(loaded);
    if (this.#handoverDue) this.#handOver();
    return { epoch };
  }

  /** Waits for what the next `stage` would wait for. */
  settle(): void {
    try {
      this.#loaded?.slots.settle();
    } catch {
      // The next `stage` tries again, and says what is wrong.
    }
  }

  unstage(): void {
    const { slots, accounts } = this.#opened();
    slots.unstage();
    accounts.rosters.unstage();
  }

  hits(query: HitQuery): HitReport | null {
    return this.#opened().accounts.hits(query);
  }

  flows(query: FlowQuery): Promise<FlowPage> {
    return this.#opened().accounts.flows(query, this.#options.timeoutsMs);
  }

  cutFlows(query: FlowQuery): Promise<FlowsCut> {
    return this.#opened().accounts.cutFlows(query);
  }

  grant(grants: readonly Grant[]): { readonly refused: number } {
    return { refused: this.#opened().grants.add(grants, process.hrtime.bigint()) };
  }

  revoke(grants: readonly Pick<Grant, 'pattern' | 'addresses'>[]): void {
    this.#opened().grants.remove(grants);
  }

  learned(): readonly Learned[] {
    return this.#opened().grants.learned(process.hrtime.bigint());
  }

  /** Makes room among the learned addresses. Expiry itself is the kernel's. */
  sweepGrants(): void {
    const grants = this.#loaded?.grants;
    grants?.sweep(process.hrtime.bigint());
    if (grants?.isGraceDue !== true) return;
    awaitGracePeriod();
    grants.afterGrace();
  }

  stats(): DatapathStats {
    const { object, slots, accounts, grants } = this.#opened();
    const counters = readCounters(object.mapFd('counters'));
    const counter = (index: number): Counter => counters[index] ?? { packets: 0n, bytes: 0n };
    const drops = Object.fromEntries(
      Object.entries(DROP_REASON)
        .filter(([name]) => name !== 'none')
        .map(([name, number]) => [name, counter(COUNTER_INDEX.drops + number)]),
    );
    drops.guard = this.#guard.dropped();
    const flowsOpened = counter(COUNTER_INDEX.flows_opened).packets;
    const flowsClosed = counter(COUNTER_INDEX.flows_closed).packets;
    const { flows, maps } = accounts.stats();
    const { generation, lines } = slots.sizeInForce();
    return {
      generation,
      activeFlows: flows,
      verdicts: {
        allow: counter(COUNTER_INDEX.allow),
        deny: add(drops.policy_deny, drops.service_plane_absent),
        audit: counter(COUNTER_INDEX.audit),
      },
      drops,
      flowsOpened,
      flowsClosed,
      grantsRefused: grants.refused,
      events: {
        lost: counter(COUNTER_INDEX.events_lost).packets,
        suppressed: counter(COUNTER_INDEX.events_suppressed).packets,
      },
      maps: {
        program: { entries: lines, capacity: this.#slotLines },
        ...maps,
        grants: grants.addresses,
        patterns: grants.patterns,
      },
    };
  }

  /** Holds from now on, also for what is opened later. */
  setEventsWanted(wanted: boolean): void {
    this.#eventsWanted = wanted;
    this.#loaded?.slots.setEventsWanted(wanted);
  }

  earMaps(): EarMaps {
    const { object } = this.#opened();
    return {
      events: object.mapFd('events'),
      ringBytes: object.shape('events').maxEntries,
      counters: object.mapFd('counters'),
      active: object.mapFd('active'),
    };
  }

  /** What changed since the last look, as far as it may have. */
  look(at: News = { links: true, guard: true }): DatapathChange[] {
    if (this.#loaded === undefined) return [];
    const untold = this.#untold;
    this.#untold = [];
    return [
      ...untold,
      ...(at.links ? this.#lookAtInterfaces(this.#loaded) : []),
      ...(at.guard ? this.#watcher.lookAtGuard(this.#guard.stands()) : []),
    ];
  }

  /** Works without `open`, for the command that leaves the node unpoliced. Refused while another process polices. */
  detach(): void {
    this.#pins.prepare();
    this.#ownership.take();
    this.#pins.refuseOthers();
    this.#watcher.attached([]);
    this.#hooks.detachAll();
    this.#guard.remove();
    this.close();
    this.#pins.remove(this.#pins.path);
  }

  close(): void {
    this.#loaded?.accounts.close();
    this.#loaded?.close();
    this.#loaded = undefined;
    this.#ownership.release();
  }

  #opened(): LoadedObject & { readonly accounts: Accounts } {
    if (this.#loaded === undefined) throw new Error('the datapath is not open');
    return this.#loaded;
  }

  #lookAtInterfaces({ object, slots }: LoadedObject): DatapathChange[] {
    const own = {
      ingress: programId(object.programFd('weir_ingress')),
      egress: programId(object.programFd('weir_egress')),
    };
    const directions = this.#hooks.directions();
    const interfaces = this.#hooks.interfaces();
    const isHeld = (found: Interface): boolean =>
      directions.every((direction) => {
        const held = this.#hooks.held(found, direction);
        return held?.programId === own[direction] || (held !== undefined && slots.epoch === 0);
      });
    return [...this.#watcher.lookAtNames(interfaces), ...this.#watcher.lookAtLinks(interfaces.policed, isHeld)];
  }

  /** The flip is done, and does not fail any more: a hook that was not switched over is told as a lost link. */
  #handOver(): void {
    try {
      this.attach();
    } catch {
      // `look` finds it.
    }
  }

  #removeOtherLayouts(): void {
    for (const folder of this.#pins.mapFolders()) {
      if (folder !== this.#opened().folder) this.#pins.remove(folder);
    }
  }
}

function add(a: Counter | undefined, b: Counter | undefined): Counter {
  return { packets: (a?.packets ?? 0n) + (b?.packets ?? 0n), bytes: (a?.bytes ?? 0n) + (b?.bytes ?? 0n) };
}
