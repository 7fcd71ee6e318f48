import { IPPROTO } from '#contracts/policy-model.js';
import { Comparison } from './comparison.js';
import type { FiveTuple } from './frames.js';
import { Rig } from './rig.js';

export const SHARE = '× unfiltered';
const UDP = { protocol: IPPROTO.udp };
const CAPACITY = 65_536;
/** Frames of one round, if there are no more flows, and how long a round of a slow filter may take. */
const ROUND = 20_000;
const ROUND_MS = 60;
const FIRST_LOOK = 200;

/** The same traffic through two nodes in turns; what is measured is how the second does beside the first. */
export class Pair {
  readonly #comparison = new Comparison();
  #round = ROUND;

  private constructor(
    readonly plain: Rig,
    readonly filtered: Rig,
  ) {
    plain.sink();
    filtered.sink();
  }

  static async with<T>(tag: string, act: (pair: Pair) => Promise<T>): Promise<T> {
    const plain = await Rig.open(`${tag}-plain`, CAPACITY);
    try {
      const filtered = await Rig.open(tag, CAPACITY);
      try {
        return await act(new Pair(plain, filtered));
      } finally {
        await filtered.remove();
      }
    } finally {
      await plain.remove();
    }
  }

  use(flows: readonly FiveTuple[]): void {
    this.plain.use(flows);
    this.filtered.use(flows);
    // What a filter keeps about a flow may be for a while only, so a round comes to every one of them.
    this.#round = Math.max(ROUND, flows.length);
  }

  /** Packets a second through the filtered node, in parts of what the plain one does. */
  async share(): Promise<number> {
    const { plain, filtered } = this;
    const first = filtered.send(FIRST_LOOK, UDP);
    const count = Math.max(FIRST_LOOK, Math.min(this.#round, Math.floor((ROUND_MS * 1e6) / first)));
    const cost = await this.#comparison.cost({
      plain: () => plain.send(this.#round, UDP),
      other: () => filtered.send(count, UDP),
    });
    return 1 / cost;
  }

  /** Nanoseconds of a packet that are not the node's: making it, and bringing it to the node's door, where it ends. */
  async deliveryNs(): Promise<number> {
    const stop = this.filtered.attach('node', 'lan0', 'stop', 'xdp');
    const cost = await this.#comparison.cost({
      plain: () => this.plain.send(ROUND, UDP),
      other: () => this.filtered.send(ROUND, UDP, null),
    });
    stop();
    return cost * this.plainNs;
  }

  /** Nanoseconds of a packet through the plain node. */
  get plainNs(): number {
    return this.#comparison.plainNs;
  }
}

/** Every flow has been answered: what keeps state has seen both of its directions. */
export function establish(rig: Rig, flows: readonly FiveTuple[]): void {
  rig.send(flows.length, UDP);
  rig.send(flows.length, { ...UDP, from: 'server' });
  rig.frames.rewind();
}
