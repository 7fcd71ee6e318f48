import { type Message, outcomeOf } from './message.js';
import { countOf, keyOf, type Row, rowOf } from './row.js';

const MOST_ROWS = 4_000;
const REMOVED_AT_ONCE = 400;
/** The number of messages that each row keeps: 4,000 rows with 5 messages each are 20,000 messages. */
const LATEST_KEPT = 5;
/** A row without messages for this time, in milliseconds, no longer counts as active. */
const ACTIVE_MS = 5_000;
const NODES_KEPT = 5;

export type Order = 'recent' | 'count' | 'rate';

/**
 * The messages of the stream, combined into a limited number of rows. This object is not a signal: the page
 * renders it four times a second.
 */
export class TrafficRows {
  readonly #rows = new Map<string, Row>();
  readonly #lost = new Map<string, number>();
  readonly #silentNodes = new Map<string, string>();
  #nextId = 0;
  #ratedAt = 0;
  #seenWhenRated = 0;
  seen = 0;
  rate = 0;
  removed = 0;
  readonly since = Date.now();
  /** A counter that increases with each change. */
  version = 0;

  get size(): number {
    return this.#rows.size;
  }

  /** The number of lost messages, by the place where they were lost. */
  get lost(): ReadonlyMap<string, number> {
    return this.#lost;
  }

  /** The cluster nodes that send no messages, with the reason. */
  get silentNodes(): ReadonlyMap<string, string> {
    return this.#silentNodes;
  }

  /** Adds a message that arrived at `at`, in milliseconds since 1970. */
  add(message: Message, at: number): void {
    this.version++;
    const { type, node_id: node, count: counted } = message;
    const count = counted ?? 1;
    if (type === 'lost') {
      const place = message.where ?? 'unknown';
      this.#lost.set(place, (this.#lost.get(place) ?? 0) + count);
      return;
    }
    if (type === 'node_gone' || type === 'node_back') {
      if (type === 'node_gone') this.#silentNodes.set(node ?? '', message.reason ?? 'unknown');
      else this.#silentNodes.delete(node ?? '');
      return;
    }
    this.seen += count;
    const outcome = outcomeOf(message);
    const key = keyOf(message, outcome);
    let row = this.#rows.get(key);
    if (row === undefined) {
      if (this.#rows.size >= MOST_ROWS) this.#removeOldest();
      row = rowOf(message, outcome, this.#nextId++, at);
      this.#rows.set(key, row);
    } else if (at - row.last > ACTIVE_MS) row.activeSince = at;
    row.last = at;
    row.time = message.time ?? at;
    if (type === 'flow_end') row.ended += count;
    else if (type !== 'flow_resume') row.opened += count;
    const { packets, bytes } = message;
    if (typeof packets === 'number') row.packets += packets;
    else if (packets != null) row.packets += packets.forward + packets.reply;
    if (bytes != null) row.bytes += bytes.forward + bytes.reply;
    if (node != null && !row.nodes.includes(node) && row.nodes.length < NODES_KEPT) row.nodes.push(node);
    if (row.latest.length === LATEST_KEPT) row.latest.shift();
    row.latest.push({ at: row.time, type, port: message.src_port ?? null, reason: message.reason ?? null });
  }

  /** Computes the message rates of the rows. Must be called about once a second. */
  rateAt(at: number): void {
    const seconds = (at - this.#ratedAt) / 1_000;
    const isFirst = this.#ratedAt === 0;
    this.#ratedAt = at;
    if (isFirst || seconds <= 0) return;
    const smoothed = (before: number, now: number) => {
      const next = before * 0.6 + now * 0.4;
      return next < 0.05 ? 0 : next;
    };
    this.rate = smoothed(this.rate, (this.seen - this.#seenWhenRated) / seconds);
    this.#seenWhenRated = this.seen;
    for (const row of this.#rows.values()) {
      const count = row.opened + row.ended;
      row.rate = smoothed(row.rate, (count - row.rated) / seconds);
      row.rated = count;
    }
    this.version++;
  }

  /**
   * Returns the sorted rows. With `recent`, the active rows come first, in the order in which they became
   * active, so that they do not move with each message. The other rows follow, sorted by their last message.
   */
  ordered(order: Order, at: number): Row[] {
    const rows = [...this.#rows.values()];
    if (order === 'count') return rows.sort((one, other) => countOf(other) - countOf(one) || one.id - other.id);
    if (order === 'rate') return rows.sort((one, other) => other.rate - one.rate || one.id - other.id);
    const place = (row: Row) => (at - row.last < ACTIVE_MS ? row.activeSince + 1e15 : row.last);
    return rows.sort((one, other) => place(other) - place(one) || other.id - one.id);
  }

  #removeOldest(): void {
    const oldest = [...this.#rows].sort(([, one], [, other]) => one.last - other.last).slice(0, REMOVED_AT_ONCE);
    for (const [key] of oldest) this.#rows.delete(key);
    this.removed += oldest.length;
  }
}
