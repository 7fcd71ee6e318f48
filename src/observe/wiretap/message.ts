import type { EventBatch } from '#dataplane/events/batch.js';
import { EVENT_FLAG, EVENT_TYPE } from '#dataplane/events/event.js';
import type { Surroundings } from '#dataplane/events/surroundings.js';
import { DROP_REASON, FLOW_STATE } from '#dataplane/program/numbers.js';
import { formatAddress } from '#policy/ipv4.js';
import { IPPROTO, PORT_PROTOCOLS } from '#policy/model.js';
import type { AddressNames } from '../address-names.js';
import type { Deciders, NamedDecider } from '../deciders.js';
import type { SeenLookup } from '../seen-lookup.js';
import { AT, startOf, VERDICT_NAMES, verdictName, wide } from './record.js';

export type MessageSurroundings = {
  readonly deciders: Deciders;
  readonly names: AddressNames;
  readonly surroundings: Surroundings;
};

const HAS_PORTS = new Set<number>(PORT_PROTOCOLS);
const REASONS = byNumber(DROP_REASON);
const STATES = byNumber(FLOW_STATE);
const QUERY_TYPES: Readonly<Record<number, string>> = {
  1: 'A',
  2: 'NS',
  5: 'CNAME',
  6: 'SOA',
  12: 'PTR',
  15: 'MX',
  16: 'TXT',
  28: 'AAAA',
  33: 'SRV',
  64: 'SVCB',
  65: 'HTTPS',
  255: 'ANY',
};

/** Writes wiretap messages (D32), each as the text of one JSON object. */
export class MessageWriter {
  readonly #known: MessageSurroundings;
  readonly #deciders = new WeakMap<NamedDecider, string>();
  #lastMs = Number.NaN;
  #lastTime = '';

  constructor(known: MessageSurroundings) {
    this.#known = known;
  }

  record(batch: EventBatch, index: number): string {
    const { words } = batch;
    const at = startOf(index);
    const kind = words[at + AT.kind] as number;
    const type = kind & 0xff;
    const flags = (words[at + AT.details] as number) >>> 24;
    if (type === EVENT_TYPE.flow_opened) return `${this.#flow(batch, at, 'flow', kind, flags)}}`;
    if (type === EVENT_TYPE.flow_ended) {
      const [forward, reply] = [wide(words, at + AT.packets), wide(words, at + AT.packets + 2)];
      const [sent, answered] = [wide(words, at + AT.bytes), wide(words, at + AT.bytes + 2)];
      return `${this.#flow(batch, at, 'flow_end', kind, flags)},"opened":"${this.#time(batch, wide(words, at + AT.opened))}","packets":{"forward":${forward},"reply":${reply}},"bytes":{"forward":${sent},"reply":${answered}}}`;
    }
    return this.#verdict(batch, at, kind, flags);
  }

  lookup({ source, hostname, type, generation, word, count, lastMs }: SeenLookup): string {
    const { deciders } = this.#known;
    const verdict = VERDICT_NAMES[word & 7] ?? null;
    const action = verdict === 'deny' ? 'deny' : 'allow';
    return `{"type":"dns","time":"${this.#wall(lastMs)}","src":"${formatAddress(source)}","hostname":${JSON.stringify(hostname)},"query_type":"${QUERY_TYPES[type] ?? `TYPE${type}`}","verdict":${quoted(verdict)},"effective_action":"${action}",${this.#decider(deciders.ofWord(generation, word))},"generation":${generation},"count":${count}}`;
  }

  #flow(batch: EventBatch, at: number, type: 'flow' | 'flow_end', kind: number, flags: number): string {
    const { words } = batch;
    const state = STATES[((words[at + AT.details] as number) >>> 16) & 0xff] ?? null;
    const foreign = (flags & EVENT_FLAG.foreign) !== 0;
    return `${this.#common(batch, at, type, kind, 'allow')},"state":${quoted(state)},"foreign":${foreign}`;
  }

  #verdict(batch: EventBatch, at: number, kind: number, flags: number): string {
    const { words } = batch;
    const passed = (kind & 0xff) === EVENT_TYPE.passed;
    const reason = (kind >>> 16) & 0xff;
    const details = words[at + AT.details] as number;
    const isIcmp = kind >>> 24 === IPPROTO.icmp;
    const more = `"drop_reason":${quoted(reason === 0 ? null : (REASONS[reason] ?? null))},"icmp_type":${isIcmp ? details & 0xff : null},"icmp_code":${isIcmp ? (details >>> 8) & 0xff : null},"tcp_flags":${kind >>> 24 === IPPROTO.tcp ? (details >>> 16) & 0xff : null}`;
    return `${this.#common(batch, at, 'verdict', kind, passed ? 'allow' : 'deny')},${more},"length":${words[at + AT.length]},"packets":${wide(words, at + AT.packets)},"outgoing":${(flags & EVENT_FLAG.outgoing) !== 0}}`;
  }

  #common(batch: EventBatch, at: number, type: string, kind: number, action: 'allow' | 'deny'): string {
    const { words } = batch;
    const { deciders, names, surroundings } = this.#known;
    const source = words[at + AT.source] as number;
    const destination = words[at + AT.destination] as number;
    const ports = words[at + AT.ports] as number;
    const protocol = kind >>> 24;
    const hasPorts = HAS_PORTS.has(protocol);
    const isEcho = protocol === IPPROTO.icmp && type !== 'verdict';
    const time = this.#time(batch, wide(words, at + AT.timeLow));
    const sides = `"src":"${formatAddress(source)}","src_port":${hasPorts ? ports & 0xffff : null},"dst":"${formatAddress(destination)}","dst_port":${hasPorts ? ports >>> 16 : null},"proto":${protocol},"icmp_id":${isEcho ? ports & 0xffff : null},"src_names":${list(names.of(source))},"dst_names":${list(names.of(destination))}`;
    const decider = this.#decider(deciders.ofHit(words[at + AT.hit] as number, words[at + AT.hitCheck] as number));
    const generation = deciders.generationOf(words[at + AT.epoch] as number);
    const name = surroundings.interfaces.get(words[at + AT.ifindex] as number) ?? null;
    return `{"type":"${type}","time":"${time}",${sides},"verdict":${quoted(verdictName(kind) ?? null)},"effective_action":"${action}",${decider},"generation":${generation},"interface":${name === null ? null : JSON.stringify(name)}`;
  }

  #decider(decider: NamedDecider): string {
    const known = this.#deciders.get(decider);
    if (known !== undefined) return known;
    const { policyId, sourceGroup, rule, decidedBy } = decider;
    const text = `"source_group":${JSON.stringify(sourceGroup)},"rule":${JSON.stringify(rule)},"decided_by":${JSON.stringify(decidedBy)},"policy_id":${JSON.stringify(policyId)}`;
    this.#deciders.set(decider, text);
    return text;
  }

  #time(batch: EventBatch, monotonicNs: number): string {
    return this.#wall(batch.unixMs(monotonicNs));
  }

  #wall(unixMs: number): string {
    const ms = Math.floor(unixMs);
    // Events come in the order of their times, many in each millisecond.
    if (ms !== this.#lastMs) {
      this.#lastMs = ms;
      this.#lastTime = new Date(ms).toISOString();
    }
    return this.#lastTime;
  }
}

/** Of words that need no escaping. */
const quoted = (text: string | null): string => (text === null ? 'null' : `"${text}"`);
const list = (texts: readonly string[]): string => (texts.length === 0 ? '[]' : JSON.stringify(texts));

function byNumber<N extends string>(numbers: Readonly<Record<N, number>>): readonly (N | undefined)[] {
  const names: (N | undefined)[] = [];
  for (const [name, number] of Object.entries<number>(numbers)) names[number] = name as N;
  return names;
}
