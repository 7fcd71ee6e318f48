import type { Verdict } from '../../ui/parts.js';
import { deciderOf, type Message, ownerName, subjectOf } from './message.js';

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
  /** When the first message came to this page, in milliseconds since 1970. */
  readonly first: number;
  last: number;
  /** The time of the last message at its node; `last` is when it came to this page. */
  time: string | number;
  /** When the messages began that have come without a long break, see `TrafficRows`. */
  activeSince: number;
  /** The number of messages, without and with those about the end of a flow. */
  opened: number;
  ended: number;
  /** Bytes and packets of the ended flows, both directions added. */
  bytes: number;
  packets: number;
  /** Messages a second, over the last seconds. */
  rate: number;
  /** The number of messages when the rate was computed. */
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

/** Returns the key of the row of a message. Equal messages have equal keys. */
export function keyOf(message: Message, outcome: Verdict): string {
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

/** Returns the row of a first message that arrived at `at`, before this message is counted. */
export function rowOf(message: Message, outcome: Verdict, id: number, at: number): Row {
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
