import type { Verdict } from '../../ui/parts.js';
import { deciderOf, type Message, outcomeOf, ownerName, subjectOf } from './message.js';

const MOST_ROWS = 4_000;
const REMOVED_AT_ONCE = 400;
/** 4,000 rows with 5 messages each are 20,000 messages. */
const LATEST_KEPT = 5;
/** A row without messages for this time gives its place at the top to others. */
const ACTIVE_MS = 5_000;
const NODES_KEPT = 5;

/** Equal messages as one row. Two messages are equal if they differ only in time, source port and size. */
export type Row = {
  readonly id: number;
  readonly outcome: Verdict;
  readonly message: Message;
  readonly from: string;
  readonly to: string;
  readonly subject: string;
  readonly decider: string;
  /** Everything that a person can filter by, in lower case. */
  readonly text: string;
  readonly first: number;
  last: number;
  /** The time of the last message at its node; `last` is when it came to this page. */
  time: string | number;
  /** When the messages began that have come without a break of `ACTIVE_MS`. */
  activeSince: number;
  opened: number;
  ended: number;
  bytes: number;
  packets: number;
  /** Messages a second, over the last seconds. */
  rate: number;
  rated: number;
  readonly nodes: string[];
  readonly latest: Sighting[];
};

/** The members in which the messages of a row differ. */
type Sighting = {
  /** The time at the node. */
  readonly at: string | number;
  readonly type: string;
  readonly port: number | null;
  readonly reason: string | null;
};

/** How often a row was seen. The end of a flow whose begin came before this page counts as well. */
export const countOf = ({ opened, ended }: Row): number => Math.max(opened, ended);

export type Order = 'recent' | 'count' | 'rate';

/**
 * The messages of the stream, folded and bounded. It is no signal: the page paints it four times a second.
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
  /** Rises with each change. */
  version = 0;

  get size(): number {
    return this.#rows.size;
  }

  /** Lost messages by the place of the loss. */
  get lost(): ReadonlyMap<string, number> {
    return this.#lost;
  }

  /** Nodes of the cluster without messages, with the reason. */
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

  /** Computes the rates. To be called about once a second. */
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
   * Returns the rows in an order. `recent`: rows that are active now come first, in the order in which they
   * became active, so that they do not change places with each message; then the others by their last
   * message.
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

function keyOf(message: Message, outcome: Verdict): string {
  const { type, src, dst, proto, dst_port: port, source_group: group, source_groups: groups, rule, http } = message;
  const about =
    type === 'dns'
      ? `dns ${message.hostname} ${message.query_type}`
      : http != null
        ? `${http.method} ${http.host} ${http.path}`
        : type === 'tls'
          ? `tls ${message.sni}`
          : (message.icmp_type ?? '');
  return `${outcome} ${src} ${dst} ${proto} ${port} ${group ?? groups?.join() ?? null} ${rule} ${message.drop_reason ?? ''} ${about}`;
}

function rowOf(message: Message, outcome: Verdict, id: number, at: number): Row {
  const { src, dst, src_names, dst_names, http, sni, hostname, type } = message;
  const source = src_names?.[0] ?? ownerName(message.src_owner);
  const from = source == null ? (src ?? '') : `${source} (${src})`;
  const name = type === 'dns' ? hostname : (http?.host ?? sni ?? dst_names?.[0] ?? ownerName(message.dst_owner));
  const to = name == null ? (dst ?? '') : dst == null ? name : `${name} (${dst})`;
  const subject = subjectOf(message);
  const decider = deciderOf(message);
  const words = [outcome.replace('_', ' '), type, from, to, subject, decider, message.drop_reason, message.reason];
  const names = [...(src_names ?? []), ...(dst_names ?? [])];
  return {
    ...{ id, outcome, message, from, to, subject, decider },
    text: [...words, message.verdict, ...names].filter(Boolean).join(' ').toLowerCase(),
    ...{ first: at, last: at, time: at, activeSince: at },
    ...{ opened: 0, ended: 0, bytes: 0, packets: 0, rate: 0, rated: 0 },
    ...{ nodes: [], latest: [] },
  };
}
