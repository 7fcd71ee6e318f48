import type {
  Adoption,
  Attachment,
  Counter,
  DatapathChange,
  DatapathStats,
  Missing,
  Staged,
} from '#dataplane/datapath.js';
import { layout } from '#dataplane/program/layout.js';
import { COUNTER_INDEX, DROP_REASON } from '#dataplane/program/numbers.js';
import type { Program } from '#policy/program.js';
import { programId } from './bpf-fd.js';
import { builtObject } from './built.js';
import { readCounters } from './counters.js';
import { Guard } from './guard.js';
import { Hooks } from './hooks.js';
import { type LoadedObject, loadObject } from './loaded-object.js';
import { type DatapathOptions, DEFAULT_SLOT_LINES } from './options.js';
import { Ownership } from './ownership.js';
import { Pins } from './pins.js';
import { probe } from './probe.js';
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
  #loaded: LoadedObject | undefined;
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
    this.#loaded = loadObject(
      {
        objectPath: this.#objectPath,
        flowCapacity: this.#options.flowCapacity,
        slotLines: this.#slotLines,
        markMask: this.#options.markMask,
        reversePath: this.#options.reversePath,
        passNonIpv4: this.#options.nonIpv4 === 'pass',
        judgeAll: false,
        traceWord: false,
      },
      this.#pins,
    );
    const { adopted, slots } = this.#loaded;
    const inForce = adopted ? slots.inForce() : null;
    return {
      adopted,
      inForce: inForce === null ? null : { generation: inForce.generation, imageSha256: inForce.imageSha256 },
    };
  }

  attach(): Attachment[] {
    const { object, slots } = this.#opened();
    const programFd = object.programFd('weir_ingress');
    // Somebody may have removed the folder of the links, and with it the links.
    this.#pins.prepare();
    // The guard first: a program that is not there yet must be closed, not open.
    this.#guard.make();
    const policed = this.#hooks.policed();
    const attachments: Attachment[] = [];
    const failures: unknown[] = [];
    this.#handoverDue = false;
    for (const found of policed) {
      try {
        const held = this.#hooks.held(found);
        if (held !== undefined && held.programId !== programId(programFd) && slots.epoch === 0) {
          this.#handoverDue = true;
          attachments.push({ interface: found.name, ifindex: found.ifindex, by: held.by });
        } else {
          attachments.push(this.#hooks.attach(found, programFd));
        }
      } catch (error) {
        // The others are judged all the same; what came in by this one, the guard stops.
        failures.push(error);
      }
    }
    this.#hooks.prune();
    this.#watcher.attached(policed);
    if (failures.length > 0) throw failures[0];
    if (!this.#handoverDue) this.#removeOtherLayouts();
    return attachments;
  }

  stage(program: Program, generation: number): Staged {
    const { slots } = this.#opened();
    const image = layout(program);
    const imageSha256 = slots.fill(image, generation);
    return { imageSha256, lines: image.lines, capacityLines: this.#slotLines };
  }

  flip(): { readonly epoch: number } {
    const { slots } = this.#opened();
    if (slots.epoch === 0) {
      slots.setPickupUntil(process.hrtime.bigint() + BigInt(this.#options.pickupMs) * 1_000_000n);
    }
    const epoch = slots.flip();
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
    this.#opened().slots.unstage();
  }

  stats(): DatapathStats {
    const { object, slots } = this.#opened();
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
    const activeFlows = Number(flowsOpened - flowsClosed);
    const { generation, lines } = slots.sizeInForce();
    return {
      generation,
      activeFlows,
      verdicts: {
        allow: counter(COUNTER_INDEX.allow),
        deny: add(drops.policy_deny, drops.service_plane_absent),
        audit: counter(COUNTER_INDEX.audit),
      },
      drops,
      flowsOpened,
      flowsClosed,
      maps: {
        program: { entries: lines, capacity: this.#slotLines },
        flows: { entries: activeFlows, capacity: this.#options.flowCapacity },
      },
    };
  }

  /** What changed since the last look. */
  look(): DatapathChange[] {
    if (this.#loaded === undefined) return [];
    const { object, slots } = this.#loaded;
    const own = programId(object.programFd('weir_ingress'));
    return this.#watcher.look({
      policed: this.#hooks.policed(),
      isHeld: (policed) => {
        const held = this.#hooks.held(policed);
        return held?.programId === own || (held !== undefined && slots.epoch === 0);
      },
      guardStands: () => this.#guard.stands(),
    });
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
    this.#loaded?.close();
    this.#loaded = undefined;
    this.#ownership.release();
  }

  #opened(): LoadedObject {
    if (this.#loaded === undefined) throw new Error('the datapath is not open');
    return this.#loaded;
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
