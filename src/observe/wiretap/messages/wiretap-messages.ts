import { u32At } from '#arrays/read.js';
import { DROP_REASON, FLOW_STATE, namesByNumber } from '#contracts/datapath/datapath-numbers.js';
import type { SeenLookup } from '#contracts/dns/seen-lookup.js';
import { IPPROTO, PORT_PROTOCOLS, type Verdict } from '#contracts/policy/policy-model.js';
import { verdictOf } from '#contracts/policy/verdict-word.js';
import type { SeenConnection } from '#contracts/service-plane/seen-connection.js';
import type { EventBatch } from '#dataplane/events/batch.js';
import { EVENT_FLAG, EVENT_TYPE, type Ipv6Ends } from '#dataplane/events/event.js';
import type { Surroundings } from '#dataplane/events/surroundings.js';
import type { AddressNames } from '#observe/names/address-names.js';
import type { AddressOwners } from '#observe/names/address-owners.js';
import type { NamedDecider, RuleNameResolver } from '#observe/names/rule-name-resolver.js';
import { formatAddress } from '#policy/model/ipv4.js';
import { AT, recordType, startOf, verdictName, wide } from './event-record.js';

export type MessageSurroundings = {
  readonly ruleNameResolver: RuleNameResolver;
  readonly names: AddressNames;
  readonly owners: AddressOwners;
  readonly surroundings: Surroundings;
};

const HAS_PORTS = new Set<number>(PORT_PROTOCOLS);
const hasPorts = (kind: number): boolean => HAS_PORTS.has(kind >>> 24);
const DROP_REASONS = namesByNumber(DROP_REASON);
const STATES = namesByNumber(FLOW_STATE);
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

/** Writes wiretap messages (D32). Each message is the text of one JSON object. */
export class WiretapMessages {
  readonly #known: MessageSurroundings;
  readonly #seen = new TimeText();
  readonly #opened = new TimeText();
  /** The fields of each decider as JSON text. */
  readonly #deciderTexts = new WeakMap<NamedDecider, string>();

  constructor(known: MessageSurroundings) {
    this.#known = known;
  }

  /**
   * Returns the message about a kernel event. With `JSON.stringify` of an object, the observer loses messages
   * at 130,000 events per second.
   */
  event(batch: EventBatch, index: number): string {
    const { words } = batch;
    const start = startOf(index);
    const word = (field: number): number => u32At(words, start + field);
    const kind = word(AT.kind);
    const type = recordType(kind);
    const details = word(AT.details);
    const has = (flag: number): boolean => ((details >>> 24) & flag) !== 0;
    const reason = nameOf(DROP_REASONS, (kind >>> 16) & 0xff);
    const translation = (): string =>
      has(EVENT_FLAG.translated)
        ? `{"dst":"${formatAddress(word(AT.packets + 2))}","dst_port":${hasPorts(kind) ? word(AT.bytes + 2) : null}}`
        : 'null';
    if (type === 'verdict') {
      const ipv6 = batch.ipv6(index);
      const protocol = kind >>> 24;
      const isIcmp = protocol === IPPROTO.icmp;
      return (
        `${this.#begin(batch, start, ipv6)},"drop_reason":${quoted(reason)}` +
        `,"icmp_type":${isIcmp ? details & 0xff : null},"icmp_code":${isIcmp ? (details >>> 8) & 0xff : null}` +
        `,"tcp_flags":${protocol === IPPROTO.tcp ? (details >>> 16) & 0xff : null},"length":${word(AT.length)}` +
        `,"packets":${ipv6 === null ? wide(words, start + AT.packets) : 1}` +
        `,"outgoing":${has(EVENT_FLAG.outgoing)},"translation":${translation()}}`
      );
    }
    const begin = `${this.#begin(batch, start, null)},"state":${quoted(nameOf(STATES, (details >>> 16) & 0xff))}`;
    const foreign = `,"foreign":${has(EVENT_FLAG.foreign)}`;
    if (type === 'flow') return `${begin}${foreign},"translation":${translation()}}`;
    const opened = this.#opened.of(batch.unixMs(wide(words, start + AT.opened)));
    return (
      `${begin},"reason":${has(EVENT_FLAG.cut) ? '"cut"' : quoted(reason)}${foreign},"opened":"${opened}"` +
      `,"packets":${bothDirections(words, start + AT.packets)},"bytes":${bothDirections(words, start + AT.bytes)}}`
    );
  }

  /** Returns the fields that messages about flows and about packets share, without the closing brace. */
  #begin(batch: EventBatch, start: number, ipv6: Ipv6Ends | null): string {
    const { ruleNameResolver, names, surroundings } = this.#known;
    const { words } = batch;
    const word = (field: number): number => u32At(words, start + field);
    const kind = word(AT.kind);
    const type = recordType(kind);
    const isVerdict = type === 'verdict';
    const protocol = kind >>> 24;
    const source = word(AT.source);
    const destination = word(AT.destination);
    const ports = word(AT.ports);
    const passes = isVerdict ? (kind & 0xff) === EVENT_TYPE.passed : ((kind >>> 16) & 0xff) === 0;
    const decider = ruleNameResolver.ofHit(word(AT.hit), word(AT.hitCheck));
    const name = surroundings.interfaces.get(word(AT.ifindex));
    return (
      `{"type":"${type}","time":"${this.#seen.of(batch.unixMs(wide(words, start + AT.timeLow)))}"` +
      `,"src":"${ipv6?.source ?? formatAddress(source)}","src_port":${hasPorts(kind) ? ports & 0xffff : null}` +
      `,"dst":"${ipv6?.destination ?? formatAddress(destination)}","dst_port":${hasPorts(kind) ? ports >>> 16 : null}` +
      `,"proto":${protocol},"icmp_id":${protocol === IPPROTO.icmp && !isVerdict ? ports & 0xffff : null}` +
      `,"src_names":${listed(names.of(source))},"dst_names":${listed(names.of(destination))}` +
      `${ipv6 === null ? this.#owners(batch, start, type === 'flow_end') : ''},"verdict":${quoted(verdictName(kind))}` +
      `,"effective_action":"${passes ? 'allow' : 'deny'}",${this.#decider(decider)}` +
      `,"generation":${ruleNameResolver.generationOf(word(AT.epoch))}` +
      `,"interface":${name === undefined ? null : JSON.stringify(name)}`
    );
  }

  /** Returns the fields for the owners of both addresses: of a flow that ended, those at its begin. */
  #owners(batch: EventBatch, start: number, isEnd: boolean): string {
    const { owners } = this.#known;
    if (owners.isEmpty) return '';
    const { words } = batch;
    const atMs = batch.unixMs(wide(words, start + (isEnd ? AT.opened : AT.timeLow)));
    const source = owners.of(u32At(words, start + AT.source), atMs);
    const destination = owners.of(u32At(words, start + AT.destination), atMs);
    if (source === null && destination === null) return '';
    return `,"src_owner":${JSON.stringify(source)},"dst_owner":${JSON.stringify(destination)}`;
  }

  #decider(decider: NamedDecider): string {
    const known = this.#deciderTexts.get(decider);
    if (known !== undefined) return known;
    const text = JSON.stringify(shownDecider(decider)).slice(1, -1);
    this.#deciderTexts.set(decider, text);
    return text;
  }

  lookup({ source, hostname, type, generation, word, count, lastMs }: SeenLookup): string {
    const { ruleNameResolver, owners } = this.#known;
    const verdict = verdictOf(word) ?? null;
    return JSON.stringify({
      type: 'dns',
      time: new Date(lastMs).toISOString(),
      src: formatAddress(source),
      src_owner: owners.of(source, lastMs) ?? undefined,
      hostname,
      query_type: QUERY_TYPES[type] ?? `TYPE${type}`,
      ...outcome(verdict),
      ...shownDecider(ruleNameResolver.ofWord(generation, word)),
      generation,
      count,
    });
  }

  /** Returns the message about a connection or request that the service plane decided. */
  connection(seen: SeenConnection): string {
    const { ruleNameResolver, names, owners } = this.#known;
    const { source, destination, generation, http } = seen;
    const sourceOwner = owners.of(source, seen.atMs);
    const destinationOwner = owners.of(destination, seen.atMs);
    return JSON.stringify({
      type: seen.kind,
      time: new Date(seen.atMs).toISOString(),
      src: formatAddress(source),
      src_port: seen.sourcePort,
      dst: formatAddress(destination),
      dst_port: seen.destinationPort,
      proto: IPPROTO.tcp,
      icmp_id: null,
      src_names: names.of(source),
      dst_names: names.of(destination),
      ...(sourceOwner === null && destinationOwner === null
        ? {}
        : { src_owner: sourceOwner, dst_owner: destinationOwner }),
      ...outcome(seen.verdict),
      ...shownDecider(ruleNameResolver.ofNames(generation, seen.decider)),
      generation,
      interface: null,
      reason: seen.reason,
      sni: seen.sni,
      ...(http === null ? {} : { http }),
    });
  }
}

const outcome = (verdict: Verdict | null) => ({
  verdict,
  effective_action: verdict === 'deny' ? 'deny' : 'allow',
});

const shownDecider = ({ sourceGroup, rule, decidedBy, policyId }: NamedDecider) => ({
  source_group: sourceGroup,
  rule,
  decided_by: decidedBy,
  policy_id: policyId,
});

const bothDirections = (words: Uint32Array, at: number): string =>
  `{"forward":${wide(words, at)},"reply":${wide(words, at + 2)}}`;

const listed = (names: readonly string[]): string => (names.length === 0 ? '[]' : JSON.stringify(names));

/** For names that need no escape in JSON. */
const quoted = (name: string | null | undefined): string =>
  name === null || name === undefined ? 'null' : `"${name}"`;

/** Null for 0 and for numbers without a name. */
function nameOf(names: readonly (string | undefined)[], number: number): string | null {
  return number === 0 ? null : (names[number] ?? null);
}

/**
 * Formats a time as ISO 8601 text. Consecutive events often have the same millisecond; in this case, the
 * object returns its last text again.
 */
class TimeText {
  #ms = Number.NaN;
  #text = '';

  of(unixMs: number): string {
    const ms = Math.floor(unixMs);
    if (ms !== this.#ms) {
      this.#ms = ms;
      this.#text = new Date(ms).toISOString();
    }
    return this.#text;
  }
}
