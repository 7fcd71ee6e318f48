import { guarded } from '#libc/termination-guard.js';
import type { RawSocket } from './raw-socket.js';
import { ENDS, JOIN_STATE, JOINED, TICK_SHIFT } from './splice-layout.js';
import type { Entry, SpliceTable } from './splice-table.js';
import { closeSilently, readEndpoint, type TcpEndpoint } from './tcp-endpoint.js';
import { type Ends, reversed, TCP_FLAGS } from './tcp-segment.js';

const WINDOW_MAX = 0xffff;
/**
 * The window offered to senders after a failed attempt. The real window follows as soon as the sockets are
 * read.
 */
const ROOM_BYTES = 0xffff;

/** The tools, the owner and the timeouts of a pair. */
export type SpliceMeans = {
  readonly table: SpliceTable;
  readonly raw: RawSocket;
  readonly joiner: number;
  readonly idleMs: number;
  readonly endedMs: number;
};
/** The two sockets that are spliced: the client's and the server's. */
export type Pair = { readonly client: number; readonly server: number };

/** A pair of connections on its way to being forwarded by the datapath alone. */
export class SplicePair {
  readonly #there: Ends;
  readonly #back: Ends;

  private constructor(
    private readonly means: SpliceMeans,
    private readonly id: number,
    private readonly endpoints: { readonly client: TcpEndpoint; readonly server: TcpEndpoint },
  ) {
    const { local, peer } = endpoints.client;
    const [source, sourcePort, destination, destinationPort] = [peer.address, peer.port, local.address, local.port];
    this.#there = { source, sourcePort, destination, destinationPort };
    this.#back = reversed(this.#there);
  }

  /**
   * Starts an attempt: from now on, both senders are offered a zero window. Returns null if the connections
   * negotiated different options, the table is full, or third-party hooks could change the forwarding.
   */
  static begin(means: SpliceMeans, id: number, pair: Pair): SplicePair | null {
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

  /** The round-trip time: for so long, data sent within an earlier window may still arrive. */
  get roundTripMs(): number {
    return Math.max(this.endpoints.client.roundTripMs, this.endpoints.server.roundTripMs);
  }

  /**
   * Splices the pair if no data is in transit, and closes the sockets. Returns false if data is still in
   * transit.
   */
  tryNow(pair: Pair): boolean {
    const { table } = this.means;
    if (table.hold(this.#there) !== JOINED.at_rest) return false;
    if (!closeSilently(pair.client)) {
      this.giveUp();
      return false;
    }
    if (!closeSilently(pair.server))
      throw new Error('close two sockets without notice to their peers: the kernel permitted it for one only');
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

  /** Removes the entries of a pair whose sockets are closed. */
  forget(): void {
    for (const ends of [this.#there, this.#back]) if (this.#find(ends) !== null) this.means.table.remove(ends);
  }

  /** Ends the attempt; the sockets stay in use. */
  giveUp(): void {
    const isKnown = this.means.table.hold(this.#there) !== JOINED.gone;
    const there = this.#find(this.#there);
    const back = this.#find(this.#back);
    this.forget();
    if (!isKnown || there === null || back === null) return;
    this.#offer(this.#there, there, back, ROOM_BYTES >>> this.endpoints.server.ownScale);
    this.#offer(this.#back, back, there, ROOM_BYTES >>> this.endpoints.client.ownScale);
  }

  /** Whether the pair has ended or is idle. If so, its entries are removed. */
  isOver(): boolean {
    const there = this.#find(this.#there);
    const back = this.#find(this.#back);
    if (there !== null && back !== null && !isPast(there, back, process.hrtime.bigint(), this.means)) return false;
    this.forget();
    return true;
  }

  /** Resets the connection at both endpoints. */
  cut(): void {
    if (this.#find(this.#there) === null || this.#find(this.#back) === null) this.forget();
    else takeAndReset(this.means, this.#there);
  }

  #find(ends: Ends): Entry | null {
    return this.means.table.find(ends, this.means.joiner, this.id);
  }

  /** Sends a segment as if from the sender of `entry`, which announces its window. */
  #offer(ends: Ends, entry: Entry, other: Entry, window: number): void {
    const hasStamps = this.endpoints.client.hasTimeStamps;
    this.means.raw.send({
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
 * Removes the entries, and then resets both endpoints: while packets still pass, the expected sequence
 * numbers change. The guard is needed because a thread terminated in between would leave both endpoints
 * waiting for ever.
 */
export function takeAndReset({ table, raw }: Pick<SpliceMeans, 'table' | 'raw'>, ends: Ends): void {
  guarded(() => {
    const there = table.take(ends);
    const back = table.take(reversed(ends));
    if (there !== null && back !== null) resetBoth(raw, ends, there, back);
  });
}

/**
 * Sends resets with the sequence numbers that each endpoint may expect: its last acknowledgment, and the end
 * of everything sent to it.
 */
function resetBoth(raw: RawSocket, ends: Ends, there: Entry, back: Entry): void {
  for (const [from, entry, other] of [
    [ends, there, back],
    [reversed(ends), back, there],
  ] as const) {
    const acknowledgment = (entry.acknowledged + entry.acknowledgment) >>> 0;
    for (const sequence of new Set([other.acknowledged, (entry.next + entry.sequence) >>> 0])) {
      raw.send({ ...from, sequence, acknowledgment, flags: TCP_FLAGS.rst | TCP_FLAGS.ack, window: 0 });
    }
  }
}

/**
 * Whether both connections negotiated the same options, so that segments can be forwarded with changed
 * numbers only.
 */
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

type Times = Pick<SpliceMeans, 'idleMs' | 'endedMs'>;
type Seen = Pick<Entry, 'last_seen' | 'ends'>;
/** Whether the pair was idle for too long. */
export function isPast(there: Seen, back: Seen, nowNs: bigint, { idleMs, endedMs }: Times): boolean {
  const now = Number((nowNs >> TICK_SHIFT) & 0xffff_ffffn);
  // A packet may be newer than the reading of the clock.
  const still = Math.min(...[there, back].map(({ last_seen }) => Math.max(0, (now - last_seen) | 0)));
  const isReset = ((there.ends | back.ends) & ENDS.reset) !== 0;
  const hasEnded = (there.ends & back.ends & ENDS.ended) !== 0;
  return still >= (isReset || hasEnded ? endedMs : idleMs) / MS_PER_TICK;
}
const MS_PER_TICK = 2 ** Number(TICK_SHIFT) / 1e6;
