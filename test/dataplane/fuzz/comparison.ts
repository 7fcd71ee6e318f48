import type { Address, AddressOf, Family, Group, Policy } from '#contracts/policy/policy-model.js';
import type { Flow } from '#dataplane/abi/flow.js';
import { compile } from '#policy/compile/compile.js';
import { GrantModel, patternsOf } from '../grant-model.js';
import { type Loaded, loadForTest, PASSED, SKB } from '../loaded.js';
import { type Answer, Model } from '../model/datapath.js';
import { FAMILY_MODELS } from '../model/family-models.js';
import type { ModelFlow } from '../model/flows.js';
import type { Step } from './sequence.js';

/** Number of ways (places for a flow) in one flow set of the flow table. */
export const ONE_SET = 8;
const SEGMENT_BYTES = 100;

export type Policies = readonly [Policy, Policy];
export type Learned = { readonly pattern: string; readonly address: Address; readonly forSeconds: number };
/** Two policies, of which one is in force at a time, and the grants for their hostname patterns. */
export type Scene = { readonly policies: Policies; readonly learned: readonly Learned[] };
export type Mismatch = {
  readonly step: number;
  readonly what: string;
  readonly kernel: unknown;
  readonly model: unknown;
};

/**
 * Runs the datapath of one IP family (BPF programs in the kernel) and its TypeScript model on the same
 * frames. Compares verdicts, packet marks, flows and counters.
 */
export class Comparison<F extends Family> {
  readonly #kernel: Loaded<F>;
  readonly #grants: GrantModel;
  readonly #model: Model<AddressOf<F>>;
  #policies: Policies;
  #inForce: 0 | 1 = 1;
  packets = 0;

  /** `flowCapacity`: the number of usable ways (places for a flow) in the only set of the table, 1 to 8. */
  constructor(
    readonly family: F,
    scene: Scene,
    flowCapacity: number,
  ) {
    this.#kernel = loadForTest({ family, flowCapacity: 4, policeLocal: true });
    this.#kernel.narrow(ONE_SET - flowCapacity);
    this.#policies = scene.policies;
    this.#grants = new GrantModel(this.#kernel);
    this.#model = new Model(
      FAMILY_MODELS[family],
      scene.policies[1],
      flowCapacity,
      this.#goneOf,
      this.#grants,
      this.#grants.ever,
    );
    this.load(scene);
  }

  close(): void {
    this.#kernel.close();
  }

  /**
   * Loads one policy into each program slot, sets the grants, and clears flows and counters of the datapath
   * and the model.
   */
  load({ policies, learned }: Scene): void {
    const patterns = [...policies.flatMap(patternsOf), ...learned.map(({ pattern }) => pattern)];
    this.#policies = [naming(policies[0], patterns), naming(policies[1], patterns)];
    for (const policy of this.#policies) {
      // No packet runs through the datapath during `load`, so no grace period is needed before a slot is
      // overwritten.
      this.#kernel.slots.assumeGrace();
      this.#kernel.activate(compile(policy, { ipv6: this.family === 'ipv6' }));
      this.#grants.activated(policy);
    }
    this.#grants.revokeAll();
    this.#kernel.grants.sweep(process.hrtime.bigint());
    this.#kernel.grants.afterGrace();
    for (const { pattern, address, forSeconds } of learned) {
      const now = process.hrtime.bigint();
      const expiry = now + BigInt(forSeconds) * 1_000_000_000n;
      // The clock begins at the boot of the machine. A grant that expired before the boot would be absent.
      this.#grants.grant(pattern, address, expiry > 0n ? expiry : now / 2n);
    }
    this.#inForce = 1;
    this.#model.activate(this.#policies[1]);
    this.#model.learned();
    this.#kernel.forget();
    this.#model.forget();
    this.#model.counters.clear();
  }

  /**
   * Runs the steps from an empty flow table. Returns the first difference between the datapath and the model,
   * or undefined.
   */
  play(steps: readonly Step[]): Mismatch | undefined {
    this.#kernel.forgetFlows();
    this.#model.forget();
    if (this.#inForce === 0) this.#switch();
    for (const [index, step] of steps.entries()) {
      const different = this.#take(step);
      if (different !== undefined) return { step: index, ...different };
    }
    const flows = difference('flows', this.#kernelFlows(), [...this.#model.flows.values()].map(describeModel).sort());
    const stray = this.#kernel.strayTallies();
    if (stray > 0) return { step: steps.length, what: 'tallies', kernel: [`${stray} without a flow`], model: [] };
    return flows && { step: steps.length, ...flows };
  }

  /** Returns the counters of the model since the last `load`, as pairs of name and count. */
  counted(): Iterable<readonly [string, number]> {
    return this.#model.counters;
  }

  /**
   * Compares all counters of the datapath and the model since the last `load`. Returns the difference, or
   * undefined.
   */
  compareCounters(): Mismatch | undefined {
    const counted = Object.entries(this.#kernel.counted()).sort();
    const modelled = [...this.#model.counters].sort();
    const found = difference('counters', counted.map(String), modelled.map(String));
    return found && { step: -1, ...found };
  }

  #switch(): void {
    this.#inForce = this.#inForce === 0 ? 1 : 0;
    this.#kernel.switchSlot();
    this.#model.activate(this.#policies[this.#inForce]);
  }

  #take(step: Step): Omit<Mismatch, 'step'> | undefined {
    if (step.kind === 'other_policy') this.#switch();
    else if (step.kind === 'new_epoch') {
      this.#kernel.newEpoch();
      this.#model.activate(this.#policies[this.#inForce]);
    } else if (step.kind !== 'frame') {
      this.#model.pickup = step.kind === 'pickup_begins';
      this.#kernel.slots.setPickupUntil(this.#model.pickup ? 1n << 62n : 0n);
    } else {
      const { bytes, mark, seen, segments } = step;
      this.packets++;
      this.#kernel.frame.set(bytes);
      this.#kernel.context.setUint32(SKB.gsoSegments, segments, true);
      this.#kernel.context.setUint32(SKB.gsoSize, segments === 0 ? 0 : SEGMENT_BYTES, true);
      const { returned, word, mark: marked } = this.#kernel.runFrame(bytes.length, mark, seen);
      const kernel: Answer = { passes: returned === PASSED, word, mark: marked };
      const model = this.#model.see({
        bytes: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength),
        length: bytes.length,
        mark,
        seen,
        merged: segments > 0,
        segments: Math.max(1, segments),
      });
      if (kernel.passes !== model.passes || word !== model.word || marked !== model.mark) {
        return { what: 'answer', kernel, model };
      }
    }
    return undefined;
  }

  /**
   * Returns the flow of `halfOpen` that the datapath has evicted, so that the model evicts this flow too.
   * Returns the first flow of `halfOpen` if the datapath has evicted none of these flows.
   */
  readonly #goneOf = (halfOpen: readonly ModelFlow<AddressOf<F>>[]): ModelFlow<AddressOf<F>> => {
    const there = this.#kernelFlows();
    const [first] = halfOpen;
    if (first === undefined) throw new RangeError('nobody can make room');
    return halfOpen.find((flow) => !there.includes(describeModel(flow))) ?? first;
  };

  #kernelFlows(): string[] {
    const epochs = this.#kernel.epoch() - this.#model.epoch;
    const halfOpen = this.#kernel.flowsIn('half_open').map((flow) => describe(flow, false, epochs));
    return [...halfOpen, ...this.#kernel.flowsIn('flows').map((flow) => describe(flow, true, epochs))].sort();
  }
}

/**
 * Returns `policy` with a further group that has no sources and one rule for each of `patterns`. A policy
 * without a pattern removes the grants of the pattern, so both policies of a scene must have all patterns.
 */
function naming(policy: Policy, patterns: readonly string[]): Policy {
  const rules = [...new Set(patterns)].map((text) => ({
    id: text,
    pointer: '',
    action: 'deny' as const,
    mode: 'enforce' as const,
    destinations: [],
    hostname: { kind: 'regex' as const, text },
    protocol: 'any' as const,
    sourcePorts: [],
    destinationPorts: [],
    icmpTypes: [],
    icmpCodes: [],
    tls: undefined,
  }));
  const nobody: Group = {
    id: 'nobody',
    pointer: '',
    mode: 'enforce',
    sources: [],
    selectors: [],
    rules,
    defaultAction: undefined,
  };
  return rules.length === 0 ? policy : { ...policy, groups: [...policy.groups, nobody] };
}

function difference(
  what: string,
  kernel: readonly string[],
  model: readonly string[],
): Omit<Mismatch, 'step'> | undefined {
  if (kernel.length === model.length && kernel.every((text, index) => text === model[index])) return undefined;
  return {
    what,
    kernel: kernel.filter((text) => !model.includes(text)),
    model: model.filter((text) => !kernel.includes(text)),
  };
}

function describe(flow: Flow<Address>, confirmed: boolean, epochs: number): string {
  const { source, sourcePort, destination, destinationPort, protocol, icmpQuery, state, foreign } = flow;
  const { epoch, word, packets, bytes } = flow;
  const judged = foreign ? 'foreign' : `epoch ${epoch - epochs} word ${word}`;
  return `${protocol} ${icmpQuery} ${source}:${sourcePort} > ${destination}:${destinationPort} ${state} ${confirmed} ${judged} packets ${packets.join()} bytes ${bytes.join()}`;
}

function describeModel(flow: ModelFlow<Address>): string {
  const { source, sourcePort, destination, destinationPort, protocol, state, confirmed, foreign, epoch, word } = flow;
  const icmpQuery = Number(/ (\d+) by /.exec(flow.key)?.[1] ?? 0);
  const judged = foreign ? 'foreign' : `epoch ${epoch} word ${word}`;
  return `${protocol} ${icmpQuery} ${source}:${sourcePort} > ${destination}:${destinationPort} ${state} ${confirmed} ${judged} packets ${flow.packets.join()} bytes ${flow.bytes.join()}`;
}
