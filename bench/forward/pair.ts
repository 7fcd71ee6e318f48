import { IPPROTO } from '#contracts/policy-model.js';
import { Comparison } from './comparison.js';
import type { FiveTuple } from './frames.js';
import { Rig } from './rig.js';

export const SHARE = '× unfiltered';
const UDP = { protocol: IPPROTO.udp };
const CAPACITY = 65_536;
/**
 * The number of frames in a round, unless there are more flows, and the maximum duration of a round of a slow
 * filter.
 */
const ROUND = 20_000;
const ROUND_MS = 60;
const FIRST_LOOK = 200;

/**
 * The same traffic through two nodes that take turns. The result is the rate of the second node relative to
 * the first.
 */
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
    // A filter may keep the state of a flow only for a short time, so each round must contain a packet of
    // every flow.
    this.#round = Math.max(ROUND, flows.length);
  }

  /** Packets a second through the filtered node, relative to the plain node. */
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

  /**
   * Nanoseconds for each packet that the node does not spend: the generation of the packet and its delivery
   * to the node, where it is dropped.
   */
  async deliveryNs(): Promise<number> {
    const stop = this.filtered.attach('node', 'lan0', 'stop', 'xdp');
    const cost = await this.#comparison.cost({
      plain: () => this.plain.send(ROUND, UDP),
      other: () => this.filtered.send(ROUND, UDP, null),
    });
    stop();
    return cost * this.plainNs;
  }

  /** Nanoseconds for each packet through the plain node. */
  get plainNs(): number {
    return this.#comparison.plainNs;
  }
}

/**
 * Sends packets in both directions of every flow, so that stateful filters treat the flows as established.
 */
export function establish(rig: Rig, flows: readonly FiveTuple[]): void {
  rig.send(flows.length, UDP);
  rig.send(flows.length, { ...UDP, from: 'server' });
  rig.frames.rewind();
}
