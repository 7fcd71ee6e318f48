import { guarded } from '#libc/termination-guard.js';
import type { RawSocket } from './raw-socket.js';
import { ENDS, JOIN_STATE, JOINED, TICK_SHIFT } from './splice-layout.js';
import type { Entry, SpliceTable } from './splice-table.js';
import { forsake, readEndpoint, type TcpEndpoint } from './tcp-endpoint.js';
import { type Ends, TCP_FLAGS, turned } from './tcp-segment.js';

const WINDOW_MAX = 0xffff;
/** Room that senders are offered where nothing came of it; what is read soon says the real one. */
const ROOM_BYTES = 0xffff;

/** Who joins, by what, and for how long. */
export type Means = {
  readonly table: SpliceTable;
  readonly raw: RawSocket;
  readonly joiner: number;
  readonly idleMs: number;
  readonly endedMs: number;
};
/** Two sockets, whose connections are to be one: the client's, and the server's. */
export type Pair = { readonly client: number; readonly server: number };

/** A pair of connections on their way to become one that the datapath forwards by itself. */
export class SplicePair {
  readonly #there: Ends;
  readonly #back: Ends;

  private constructor(
    private readonly means: Means,
    private readonly id: number,
    private readonly endpoints: { readonly client: TcpEndpoint; readonly server: TcpEndpoint },
  ) {
    const { local, peer } = endpoints.client;
    const [source, sourcePort, destination, destinationPort] = [peer.address, peer.port, local.address, local.port];
    this.#there = { source, sourcePort, destination, destinationPort };
    this.#back = turned(this.#there);
  }

  /**
   * From now on neither sender is offered room. Null where they have agreed on different things, nothing has room for it, or
   * others have a say in what is forwarded.
   */
  static begin(means: Means, id: number, pair: Pair): SplicePair | null {
    const client = readEndpoint(pair.client);
    const server = readEndpoint(pair.server);
    if (client === null || server === null || !areAlike(client, server)) return null;
    const join = new SplicePair(means, id, { client, server });
    const { joiner, table } = means;
    if (table.hold(join.#there) === JOINED.unable) return null;
    const quiet = { state: JOIN_STATE.quiet, joiner, id };
    if (!table.add(join.#there, { ...quiet, window_shift: client.peerScale - server.ownScale })) return null;
    if (table.add(join.#back, { ...quiet, window_shift: server.peerScale - client.ownScale })) return join;
    table.remove(join.#there);
    return null;
  }

  /** Until then what was offered before may be made use of. */
  get roundTripMs(): number {
    return Math.max(this.endpoints.client.roundTripMs, this.endpoints.server.roundTripMs);
  }

  /** Joins them where nothing is under way, and closes the sockets. False: not yet. */
  tryNow(pair: Pair): boolean {
    const { table } = this.means;
    if (table.hold(this.#there) !== JOINED.at_rest) return false;
    if (!forsake(pair.client)) {
      this.giveUp();
      return false;
    }
    if (!forsake(pair.server)) throw new Error('the kernel lets one socket be left, and not the other');
    const there = this.#find(this.#there);
    const back = this.#find(this.#back);
    const isOpen = table.setState(this.#there, JOIN_STATE.joined) && table.setState(this.#back, JOIN_STATE.joined);
    if (there === null || back === null || !isOpen) {
      this.cut();
      return true;
    }
    this.#offer(this.#there, there, back, there.window >>> this.endpoints.server.ownScale);
    this.#offer(this.#back, back, there, back.window >>> this.endpoints.client.ownScale);
    return true;
  }

  /** The sockets are gone. */
  forget(): void {
    for (const ends of [this.#there, this.#back]) if (this.#find(ends) !== null) this.means.table.remove(ends);
  }

  /** The sockets stay. */
  giveUp(): void {
    const isKnown = this.means.table.hold(this.#there) !== JOINED.gone;
    const there = this.#find(this.#there);
    const back = this.#find(this.#back);
    this.forget();
    if (!isKnown || there === null || back === null) return;
    this.#offer(this.#there, there, back, ROOM_BYTES >>> this.endpoints.server.ownScale);
    this.#offer(this.#back, back, there, ROOM_BYTES >>> this.endpoints.client.ownScale);
  }

  /** Whether it is over: it has ended, or nobody speaks. Then nothing is left of it. */
  isOver(): boolean {
    const there = this.#find(this.#there);
    const back = this.#find(this.#back);
    if (there !== null && back !== null && !isPast(there, back, process.hrtime.bigint(), this.means)) return false;
    this.forget();
    return true;
  }

  /** Ends it, and tells both sides. */
  cut(): void {
    if (this.#find(this.#there) === null || this.#find(this.#back) === null) this.forget();
    else takeAndReset(this.means, this.#there);
  }

  #find(ends: Ends): Entry | null {
    return this.means.table.find(ends, this.means.joiner, this.id);
  }

  /** As if by the sender of `entry`: how much room it has. */
  #offer(ends: Ends, entry: Entry, other: Entry, window: number): void {
    const hasStamps = this.endpoints.client.hasTimeStamps;
    this.means.raw.say({
      ...ends,
      sequence: (entry.next + entry.sequence) >>> 0,
      acknowledgment: (entry.acknowledged + entry.acknowledgment) >>> 0,
      flags: TCP_FLAGS.ack,
      window: Math.min(window, WINDOW_MAX),
      stamps: hasStamps ? [(entry.stamp + entry.time) >>> 0, other.stamp] : undefined,
    });
  }
}

/**
 * Ends what is joined, and then tells both sides: while anything passes, the numbers that they wait for change. A thread that
 * was ended in between would leave two who wait for ever.
 */
export function takeAndReset({ table, raw }: Pick<Means, 'table' | 'raw'>, ends: Ends): void {
  guarded(() => {
    const there = table.take(ends);
    const back = table.take(turned(ends));
    if (there !== null && back !== null) resetBoth(raw, ends, there, back);
  });
}

/** By the numbers that each waits for, as far as they are known: what it has acknowledged, and all that was sent to it. */
function resetBoth(raw: RawSocket, ends: Ends, there: Entry, back: Entry): void {
  for (const [from, entry, other] of [
    [ends, there, back],
    [turned(ends), back, there],
  ] as const) {
    const acknowledgment = (entry.acknowledged + entry.acknowledgment) >>> 0;
    for (const sequence of new Set([other.acknowledged, (entry.next + entry.sequence) >>> 0])) {
      raw.say({ ...from, sequence, acknowledgment, flags: TCP_FLAGS.rst | TCP_FLAGS.ack, window: 0 });
    }
  }
}

/** Whether what each side said of itself to the node is what it would have said to the other side, but for numbers. */
function areAlike(client: TcpEndpoint, server: TcpEndpoint): boolean {
  return (
    client.local.address === server.peer.address &&
    client.local.port === server.peer.port &&
    client.peer.address === server.local.address &&
    client.peer.port === server.local.port &&
    client.hasTimeStamps === server.hasTimeStamps &&
    client.hasSack === server.hasSack &&
    client.takes <= server.sends &&
    server.takes <= client.sends
  );
}

type Times = Pick<Means, 'idleMs' | 'endedMs'>;
type Seen = Pick<Entry, 'last_seen' | 'ends'>;
/** Whether nobody has said anything for too long. */
export function isPast(there: Seen, back: Seen, nowNs: bigint, { idleMs, endedMs }: Times): boolean {
  const now = Number((nowNs >> TICK_SHIFT) & 0xffff_ffffn);
  // A packet may be newer than this look at the clock.
  const still = Math.min(...[there, back].map(({ last_seen }) => Math.max(0, (now - last_seen) | 0)));
  const isReset = ((there.ends | back.ends) & ENDS.reset) !== 0;
  const hasEnded = (there.ends & back.ends & ENDS.ended) !== 0;
  return still >= (isReset || hasEnded ? endedMs : idleMs) / MS_PER_TICK;
}
const MS_PER_TICK = 2 ** Number(TICK_SHIFT) / 1e6;
