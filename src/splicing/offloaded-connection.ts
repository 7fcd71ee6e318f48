import { smallest } from '#arrays/extremes.js';
import { type Ends, reversed } from '#contracts/policy/policy-model.js';
import { guarded } from '#libc/termination-guard.js';
import { closeSilently, readEndpoint, type TcpEndpoint } from '#sockets/listening/tcp-endpoint.js';
import { ENDS, HOLD_RESULT, SPLICE_STATE, TICK_SHIFT } from './layout.js';
import type { RawSocket } from './raw-socket.js';
import type { Entry, SpliceTable } from './table.js';
import { TCP_FLAGS } from './tcp-segment.js';

const WINDOW_MAX = 0xffff;
/**
 * The receive window in bytes that the node announces to both peers after a failed offload attempt. As soon
 * as a process reads data, the sockets announce their real windows.
 */
const ROOM_BYTES = 0xffff;

/**
 * The BPF map, the raw socket, the number of the offloader and the timeouts that an `OffloadedConnection`
 * uses.
 */
export type SpliceMeans = {
  readonly table: SpliceTable;
  readonly raw: RawSocket;
  readonly offloader: number;
  readonly idleMs: number;
  readonly endedMs: number;
};
/** The descriptors of the two sockets of a spliced connection: to the client and to the server. */
export type SocketPair = { readonly client: number; readonly server: number };

/** A spliced connection while it is offloaded to the datapath, and afterwards. */
export class OffloadedConnection {
  readonly #there: Ends<number>;
  readonly #back: Ends<number>;

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
   * Starts an offload attempt. From this call on, the datapath announces a zero window to both peers, so
   * that they stop sending. Returns null in three cases: the two connections cannot be offloaded
   * (`readEndpoint`, `areAlike`), direct forwarding is off, or the BPF map is full.
   */
  static begin(means: SpliceMeans, id: number, pair: SocketPair): OffloadedConnection | null {
    const client = readEndpoint(pair.client);
    const server = readEndpoint(pair.server);
    if (client === null || server === null || !areAlike(client, server)) return null;
    const connection = new OffloadedConnection(means, id, { client, server });
    const { offloader, table } = means;
    if (table.hold(connection.#there) === HOLD_RESULT.unable) return null;
    const quiet = { state: SPLICE_STATE.quiet, joiner: offloader, id };
    if (!table.add(connection.#there, { ...quiet, window_shift: client.peerScale - server.ownScale })) return null;
    if (table.add(connection.#back, { ...quiet, window_shift: server.peerScale - client.ownScale })) return connection;
    table.remove(connection.#there);
    return null;
  }

  /**
   * The greater round-trip time of the two connections, in milliseconds. For this time after `begin`, data
   * that a peer sent before the zero window may still arrive.
   */
  get roundTripMs(): number {
    return Math.max(this.endpoints.client.roundTripMs, this.endpoints.server.roundTripMs);
  }

  /**
   * If no data is in transit, closes both sockets and makes the datapath forward the connection. Returns
   * false if data is still in transit or the kernel refuses the close; the sockets then stay open.
   */
  tryNow(pair: SocketPair): boolean {
    const { table } = this.means;
    if (table.hold(this.#there) !== HOLD_RESULT.at_rest) return false;
    if (!closeSilently(pair.client)) {
      this.giveUp();
      return false;
    }
    if (!closeSilently(pair.server))
      throw new Error(
        'close both sockets of a connection without a FIN or RST: the kernel permitted it for only one of them',
      );
    const there = this.#find(this.#there);
    const back = this.#find(this.#back);
    const isOpen = table.setState(this.#there, SPLICE_STATE.joined) && table.setState(this.#back, SPLICE_STATE.joined);
    if (there === null || back === null || !isOpen) {
      this.cut();
      return true;
    }
    this.#offer(this.#there, there, back, there.window >>> this.endpoints.server.ownScale);
    this.#offer(this.#back, back, there, back.window >>> this.endpoints.client.ownScale);
    return true;
  }

  /** Removes the BPF map entries of this connection, and sends nothing to the peers. */
  forget(): void {
    for (const ends of [this.#there, this.#back]) if (this.#find(ends) !== null) this.means.table.remove(ends);
  }

  /**
   * Ends the offload attempt, and announces a receive window to both peers, so that they continue to send.
   * The sockets stay open, and splicing between the sockets continues.
   */
  giveUp(): void {
    const isKnown = this.means.table.hold(this.#there) !== HOLD_RESULT.gone;
    const there = this.#find(this.#there);
    const back = this.#find(this.#back);
    this.forget();
    if (!isKnown || there === null || back === null) return;
    this.#offer(this.#there, there, back, ROOM_BYTES >>> this.endpoints.server.ownScale);
    this.#offer(this.#back, back, there, ROOM_BYTES >>> this.endpoints.client.ownScale);
  }

  /**
   * Returns true if the offloaded connection has ended or was idle for too long, and then removes its BPF
   * map entries.
   */
  isOver(): boolean {
    const there = this.#find(this.#there);
    const back = this.#find(this.#back);
    if (there !== null && back !== null && !isPast(there, back, process.hrtime.bigint(), this.means)) return false;
    this.forget();
    return true;
  }

  /** Makes the datapath drop all packets of this connection, or forward them again. */
  setSuspended(suspended: boolean): void {
    const { table } = this.means;
    if (this.#find(this.#there) === null || this.#find(this.#back) === null) return;
    if (suspended) {
      table.hold(this.#there);
      return;
    }
    for (const ends of [this.#there, this.#back]) table.setState(ends, SPLICE_STATE.joined);
  }

  /** Resets the connection at the client and at the server. */
  cut(): void {
    if (this.#find(this.#there) === null || this.#find(this.#back) === null) this.forget();
    else takeAndReset(this.means, this.#there);
  }

  #find(ends: Ends<number>): Entry | null {
    return this.means.table.find(ends, this.means.offloader, this.id);
  }

  /**
   * Sends an empty ACK from the source of `ends` to the destination of `ends`. The ACK announces `window` as
   * the receive window of the source.
   */
  #offer(ends: Ends<number>, entry: Entry, other: Entry, window: number): void {
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
 * Resets a connection at both peers. Removes the BPF map entries of both directions first: while packets
 * pass, the sequence numbers that the peers expect change. `guarded` prevents the end of the thread between
 * removal and reset, after which both peers would wait for ever.
 */
export function takeAndReset({ table, raw }: Pick<SpliceMeans, 'table' | 'raw'>, ends: Ends<number>): void {
  guarded(() => {
    const there = table.take(ends);
    const back = table.take(reversed(ends));
    if (there !== null && back !== null) resetBoth(raw, ends, there, back);
  });
}

/**
 * Sends TCP resets to both peers. A peer accepts a reset only with an expected sequence number. This number
 * is either the peer's last acknowledgment number, or the number after the last byte sent to the peer.
 */
function resetBoth(raw: RawSocket, ends: Ends<number>, there: Entry, back: Entry): void {
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
 * Returns true if the datapath can forward segments between the two connections by changing numbers in the
 * TCP header only. For this, both connections must have the same addresses, ports and TCP options, and each
 * segment must be small enough for the other connection.
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
/**
 * Returns true if no packet passed for `idleMs`, or for `endedMs` after a reset or after the end of both
 * directions.
 */
export function isPast(there: Seen, back: Seen, nowNs: bigint, { idleMs, endedMs }: Times): boolean {
  const now = Number((nowNs >> TICK_SHIFT) & 0xffff_ffffn);
  // A packet may arrive after the clock was read. `last_seen` is then greater than `now`, and the idle time
  // is 0.
  const still = smallest([there, back].map(({ last_seen }) => Math.max(0, (now - last_seen) | 0)));
  const isReset = ((there.ends | back.ends) & ENDS.reset) !== 0;
  const hasEnded = (there.ends & back.ends & ENDS.ended) !== 0;
  return still >= (isReset || hasEnded ? endedMs : idleMs) / MS_PER_TICK;
}
const MS_PER_TICK = 2 ** Number(TICK_SHIFT) / 1e6;
