import { type Family, IPPROTO } from '#contracts/policy/policy-model.js';
import { Comparison } from './comparison.js';
import type { FiveTuple } from './frames.js';
import { ForwardRig, type Send } from './rig.js';

export const SHARE = '× unfiltered';
const UDP = { protocol: IPPROTO.udp };
const CAPACITY = 65_536;
/**
 * Limits of a round. `ROUND` is the number of frames; with more flows than `ROUND`, a round has one frame for
 * each flow. A slow filter gets fewer frames, so that its round takes about `ROUND_MS` milliseconds.
 */
const ROUND = 20_000;
const ROUND_MS = 60;
const FIRST_LOOK = 200;

/**
 * Two nodes that forward the same traffic in turns. The benchmark loads a packet filter on the node
 * `filtered`, and usually none on the node `plain`.
 */
export class Pair {
  readonly #comparison = new Comparison();
  #round = ROUND;

  private constructor(
    readonly plain: ForwardRig,
    readonly filtered: ForwardRig,
  ) {
    plain.sink();
    filtered.sink();
  }

  /** `families`: the IP family of the frames of the plain node, and that of the filtered one. */
  static async with<T>(
    tag: string,
    act: (pair: Pair) => Promise<T>,
    families: readonly [plain: Family, filtered: Family] = ['ipv4', 'ipv4'],
  ): Promise<T> {
    const plain = await ForwardRig.open(`${tag}-plain`, CAPACITY, families[0]);
    try {
      const filtered = await ForwardRig.open(tag, CAPACITY, families[1]);
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
    // Send at least one packet of every flow in each round, because a stateful filter may forget an idle flow
    // after a short time.
    this.#round = Math.max(ROUND, flows.length);
  }

  /**
   * Returns the packet rate of the filtered node divided by the packet rate of the plain node. `stream`: the
   * frames; packets of UDP of the flows by default.
   */
  async share(stream: Send = UDP): Promise<number> {
    const { plain, filtered } = this;
    const first = filtered.send(FIRST_LOOK, stream);
    const count = Math.max(FIRST_LOOK, Math.min(this.#round, Math.floor((ROUND_MS * 1e6) / first)));
    const cost = await this.#comparison.cost({
      plain: () => plain.send(this.#round, stream),
      other: () => filtered.send(count, stream),
    });
    return 1 / cost;
  }

  /**
   * Returns the nanoseconds per packet that no filter can save: the generation of a frame and its delivery to
   * the node, which drops the frame.
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

  /** Nanoseconds per packet that the plain node forwards. */
  get plainNs(): number {
    return this.#comparison.plainNs;
  }
}

/**
 * Sends packets in both directions of every flow, so that stateful filters treat the flows as established.
 */
export function establish(rig: ForwardRig, flows: readonly FiveTuple[]): void {
  rig.send(flows.length, UDP);
  rig.send(flows.length, { ...UDP, from: 'server' });
  rig.frames.rewind();
}
