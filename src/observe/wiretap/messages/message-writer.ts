import { formatAddress } from '#addresses/ip-address.js';
import { itemAt, u32At } from '#arrays/read.js';
import { DROP_REASON, FLOW_STATE } from '#contracts/datapath/datapath-numbers.js';
import type { SeenLookup } from '#contracts/dns/seen-lookup.js';
import { type Address, IPPROTO, PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';
import { verdictOf } from '#contracts/policy/verdict-word.js';
import type { SeenConnection } from '#contracts/service-plane/seen-connection.js';
import type { EventBatch } from '#dataplane/events/batch.js';
import { EVENT_FLAG, EVENT_TYPE } from '#dataplane/events/event.js';
import type { Surroundings } from '#dataplane/events/surroundings.js';
import type { AddressNames } from '#observe/names/address-names.js';
import type { AddressOwners } from '#observe/names/address-owners.js';
import type { NamedDecider, RuleNameResolver } from '#observe/names/rule-name-resolver.js';
import { type ByteWriter, bytesOf } from './byte-writer.js';
import { connectionMessage, shownOwners } from './connection-message.js';
import {
  AT,
  addressAt,
  isIcmpRecord,
  type RecordType,
  recordType,
  startOf,
  VERDICT_NAMES,
  wide,
  wireAddressAt,
} from './event-record.js';

export type MessageSurroundings = {
  readonly ruleNameResolver: RuleNameResolver;
  readonly names: AddressNames;
  readonly owners: AddressOwners;
  readonly surroundings: Surroundings;
};

const HAS_PORTS = new Set<number>(PORT_PROTOCOLS);
const quoted = (text: string | null | undefined): string =>
  text === null || text === undefined ? 'null' : `"${text}"`;
const REASONS = partsBy(DROP_REASON, 'drop_reason');
const END_REASONS = partsBy(DROP_REASON, 'reason');
const STATES = partsBy(FLOW_STATE, 'state');
const VERDICTS = Array.from({ length: 8 }, (_, number) => `,"verdict":${quoted(VERDICT_NAMES[number])}`);
const PASSES = VERDICTS.map((verdict) => bytesOf(`${verdict},"effective_action":"allow",`));
const ENDS_HERE = VERDICTS.map((verdict) => bytesOf(`${verdict},"effective_action":"deny",`));
const part = {
  flow: startOfMessage('flow'),
  flow_end: startOfMessage('flow_end'),
  flow_suspend: startOfMessage('flow_suspend'),
  flow_resume: startOfMessage('flow_resume'),
  verdict: startOfMessage('verdict'),
  source: bytesOf('","src":"'),
  sourcePort: bytesOf('","src_port":'),
  destination: bytesOf(',"dst":"'),
  destinationPort: bytesOf('","dst_port":'),
  protocol: bytesOf(',"proto":'),
  icmpId: bytesOf(',"icmp_id":'),
  unnamed: bytesOf(',"src_names":[],"dst_names":[]'),
  sourceNames: bytesOf(',"src_names":'),
  destinationNames: bytesOf(',"dst_names":'),
  generation: bytesOf(',"generation":'),
  unknownGroups: bytesOf(',"source_groups":null'),
  nowhere: bytesOf(',"interface":null'),
  foreign: bytesOf(',"foreign":true,"translation":'),
  judged: bytesOf(',"foreign":false,"translation":'),
  cut: bytesOf(',"reason":"cut"'),
  foreignEnd: bytesOf(',"foreign":true,"opened":"'),
  judgedEnd: bytesOf(',"foreign":false,"opened":"'),
  packetsForward: bytesOf('","packets":{"forward":'),
  reply: bytesOf(',"reply":'),
  bytesForward: bytesOf('},"bytes":{"forward":'),
  end: bytesOf('}}'),
  icmpType: bytesOf(',"icmp_type":'),
  icmpCode: bytesOf(',"icmp_code":'),
  tcpFlags: bytesOf(',"tcp_flags":'),
  length: bytesOf(',"length":'),
  packets: bytesOf(',"packets":'),
  incoming: bytesOf(',"outgoing":false,"translation":'),
  outgoing: bytesOf(',"outgoing":true,"translation":'),
  untranslated: bytesOf('null}'),
  wireDestination: bytesOf('{"dst":"'),
  wirePort: bytesOf('","dst_port":'),
  nothing: bytesOf('null'),
  count: bytesOf(',"count":'),
  firstSeen: bytesOf(',"first_seen":"'),
  endOfText: bytesOf('"}'),
} as const;
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

/**
 * One event record of a batch. `at`: index of the record's first word in `batch.words`. `kind` and `details`:
 * the words at `AT.kind` and `AT.details`.
 */
type EventRecord = {
  readonly batch: EventBatch;
  readonly at: number;
  readonly kind: number;
  readonly details: number;
  readonly source: Address;
  readonly destination: Address;
};

/** Encodes wiretap messages (D32). Each message is one JSON object. */
export class MessageWriter {
  readonly #known: MessageSurroundings;
  /** The encoded JSON fields of each decider (the rule or default that decided). */
  readonly #encodedDeciders = new WeakMap<NamedDecider, Uint8Array>();
  readonly #encodedGroups = new WeakMap<readonly string[], Uint8Array>();
  readonly #interfaces = new Map<string, Uint8Array>();
  readonly #seen = new TimeText();
  readonly #opened = new TimeText();
  readonly #first = new TimeText();

  constructor(known: MessageSurroundings) {
    this.#known = known;
  }

  record(out: ByteWriter, batch: EventBatch, index: number): void {
    const { words } = batch;
    const at = startOf(index);
    const kind = u32At(words, at + AT.kind);
    const details = u32At(words, at + AT.details);
    const type = recordType(kind);
    const source = addressAt(words, at + AT.source, details);
    const destination = addressAt(words, at + AT.destination, details);
    const record = { batch, at, kind, details, source, destination };
    if (type === 'verdict') this.#verdict(out, record);
    else this.#flow(out, record, type);
  }

  lookup(out: ByteWriter, { source, hostname, type, generation, word, count, lastMs }: SeenLookup): void {
    const { ruleNameResolver, owners } = this.#known;
    const owner = owners.of(source, lastMs);
    const verdict = verdictOf(word) ?? null;
    const action = verdict === 'deny' ? 'deny' : 'allow';
    const time = new Date(Math.floor(lastMs)).toISOString();
    out.text(
      `{"type":"dns","time":"${time}","src":"${formatAddress(source)}",${owner === null ? '' : `"src_owner":${JSON.stringify(owner)},`}"hostname":${JSON.stringify(hostname)},"query_type":"${QUERY_TYPES[type] ?? `TYPE${type}`}","verdict":${quoted(verdict)},"effective_action":"${action}",`,
    );
    const decider = ruleNameResolver.ofWord(generation, word);
    out.put(this.#decider(decider));
    this.#groups(out, ruleNameResolver.groupsOfSource(decider, source, owner));
    out.text(`,"generation":${generation},"count":${count}}`);
  }

  connection(out: ByteWriter, seen: SeenConnection): void {
    out.text(connectionMessage(seen, this.#known));
  }

  /**
   * Adds to the last message that it stands for `count` equal messages, of which the first was at `firstMs`.
   * `count` is null if the message already has a count.
   */
  folded(out: ByteWriter, firstMs: number, count: number | null): void {
    // Overwrite the brace that ends the message.
    out.length--;
    if (count !== null) {
      out.put(part.count);
      out.number(count);
    }
    out.put(part.firstSeen);
    out.put(this.#first.of(firstMs));
    out.put(part.endOfText);
  }

  #flow(out: ByteWriter, record: EventRecord, type: Exclude<RecordType, 'verdict'>): void {
    const { batch, at, kind, details } = record;
    const { words } = batch;
    const isForeign = ((details >>> 24) & EVENT_FLAG.foreign) !== 0;
    const endReason = (kind >>> 16) & 0xff;
    const outcomes = endReason === 0 ? PASSES : ENDS_HERE;
    this.#common(out, record, part[type], outcomes);
    out.put(itemAt(STATES, (details >>> 16) & 0xff));
    if (type === 'flow') {
      out.put(isForeign ? part.foreign : part.judged);
      this.#translation(out, record);
      return;
    }
    const isCut = ((details >>> 24) & EVENT_FLAG.cut) !== 0;
    out.put(isCut ? part.cut : itemAt(END_REASONS, endReason));
    out.put(isForeign ? part.foreignEnd : part.judgedEnd);
    out.put(this.#opened.of(batch.unixMs(wide(words, at + AT.opened))));
    out.put(part.packetsForward);
    out.number(wide(words, at + AT.packets));
    out.put(part.reply);
    out.number(wide(words, at + AT.packets + 2));
    out.put(part.bytesForward);
    out.number(wide(words, at + AT.bytes));
    out.put(part.reply);
    out.number(wide(words, at + AT.bytes + 2));
    out.put(part.end);
  }

  #verdict(out: ByteWriter, record: EventRecord): void {
    const { batch, at, kind, details } = record;
    const { words } = batch;
    const protocol = kind >>> 24;
    const isIcmp = isIcmpRecord(kind, details);
    this.#common(out, record, part.verdict, (kind & 0xff) === EVENT_TYPE.passed ? PASSES : ENDS_HERE);
    out.put(itemAt(REASONS, (kind >>> 16) & 0xff));
    out.put(part.icmpType);
    numberOr(out, isIcmp, details & 0xff);
    out.put(part.icmpCode);
    numberOr(out, isIcmp, (details >>> 8) & 0xff);
    out.put(part.tcpFlags);
    numberOr(out, protocol === IPPROTO.tcp, (details >>> 16) & 0xff);
    out.put(part.length);
    out.number(u32At(words, at + AT.length));
    out.put(part.packets);
    out.number(wide(words, at + AT.packets));
    out.put(((details >>> 24) & EVENT_FLAG.outgoing) !== 0 ? part.outgoing : part.incoming);
    this.#translation(out, record);
  }

  /** Writes the destination before DNAT, if this node translated it, and the end of the message. */
  #translation(out: ByteWriter, { batch, at, kind, details }: EventRecord): void {
    const isTranslated = ((details >>> 24) & EVENT_FLAG.translated) !== 0;
    if (!isTranslated) {
      out.put(part.untranslated);
      return;
    }
    out.put(part.wireDestination);
    writeAddress(out, wireAddressAt(batch.words, at, details));
    out.put(part.wirePort);
    numberOr(out, HAS_PORTS.has(kind >>> 24), details & 0xffff);
    out.put(part.end);
  }

  /**
   * Writes the fields that messages about flows and about verdicts share. `outcomes`: for each verdict
   * number, the JSON text of the verdict and of the effective action.
   */
  #common(out: ByteWriter, record: EventRecord, type: Uint8Array, outcomes: readonly Uint8Array[]): void {
    const { batch, at, kind, details, source, destination } = record;
    const { words } = batch;
    const { ruleNameResolver } = this.#known;
    const ports = u32At(words, at + AT.ports);
    const protocol = kind >>> 24;
    const hasPorts = HAS_PORTS.has(protocol);
    out.put(type);
    out.put(this.#seen.of(batch.unixMs(wide(words, at + AT.timeLow))));
    out.put(part.source);
    writeAddress(out, source);
    out.put(part.sourcePort);
    numberOr(out, hasPorts, ports & 0xffff);
    out.put(part.destination);
    writeAddress(out, destination);
    out.put(part.destinationPort);
    numberOr(out, hasPorts, ports >>> 16);
    out.put(part.protocol);
    out.number(protocol);
    out.put(part.icmpId);
    numberOr(out, isIcmpRecord(kind, details) && type !== part.verdict, ports & 0xffff);
    this.#names(out, source, destination);
    if (!this.#known.owners.isEmpty) this.#owners(out, record);
    out.put(itemAt(outcomes, (kind >>> 8) & 7));
    const decider = ruleNameResolver.ofHit(u32At(words, at + AT.hit), u32At(words, at + AT.hitCheck));
    out.put(this.#decider(decider));
    if (decider.decidedBy === 'policy_default') {
      const { owners } = this.#known;
      const owner = owners.isEmpty ? null : owners.of(source, ownedAt(record));
      this.#groups(out, ruleNameResolver.groupsOfSource(decider, source, owner));
    }
    out.put(part.generation);
    const generation = ruleNameResolver.generationOf(u32At(words, at + AT.epoch));
    numberOr(out, generation !== null, generation ?? 0);
    out.put(this.#interface(u32At(words, at + AT.ifindex)));
  }

  #names(out: ByteWriter, source: Address, destination: Address): void {
    const { names } = this.#known;
    const [ofSource, ofDestination] = [names.of(source), names.of(destination)];
    if (ofSource.length + ofDestination.length === 0) {
      out.put(part.unnamed);
      return;
    }
    out.put(part.sourceNames);
    out.text(JSON.stringify(ofSource));
    out.put(part.destinationNames);
    out.text(JSON.stringify(ofDestination));
  }

  /**
   * Writes the Kubernetes owners of both addresses; for a flow that was opened before, the owners at its
   * begin.
   */
  #owners(out: ByteWriter, record: EventRecord): void {
    const { owners } = this.#known;
    const atMs = ownedAt(record);
    const source = owners.of(record.source, atMs);
    const destination = owners.of(record.destination, atMs);
    if (source !== null || destination !== null)
      out.text(`,${JSON.stringify(shownOwners(source, destination)).slice(1, -1)}`);
  }

  /** Writes the groups of the source, which a message has if the default of the policy decided. */
  #groups(out: ByteWriter, groups: readonly string[] | null | undefined): void {
    if (groups === undefined) return;
    if (groups === null) {
      out.put(part.unknownGroups);
      return;
    }
    const known = this.#encodedGroups.get(groups);
    const written = known ?? bytesOf(`,"source_groups":${JSON.stringify(groups)}`);
    if (known === undefined) this.#encodedGroups.set(groups, written);
    out.put(written);
  }

  #interface(ifindex: number): Uint8Array {
    const name = this.#known.surroundings.interfaces.get(ifindex);
    if (name === undefined) return part.nowhere;
    const known = this.#interfaces.get(name);
    if (known !== undefined) return known;
    const written = bytesOf(`,"interface":${JSON.stringify(name)}`);
    this.#interfaces.set(name, written);
    return written;
  }

  #decider(decider: NamedDecider): Uint8Array {
    const known = this.#encodedDeciders.get(decider);
    if (known !== undefined) return known;
    const { policyId, sourceGroup, rule, decidedBy } = decider;
    const written = bytesOf(
      `"source_group":${JSON.stringify(sourceGroup)},"rule":${JSON.stringify(rule)},"decided_by":${JSON.stringify(decidedBy)},"policy_id":${JSON.stringify(policyId)}`,
    );
    this.#encodedDeciders.set(decider, written);
    return written;
  }
}

/**
 * Formats a time as ISO 8601 text. Consecutive events often have the same millisecond; in this case, the
 * object returns its last text again.
 */
class TimeText {
  #ms = Number.NaN;
  #text = bytesOf('');

  of(unixMs: number): Uint8Array {
    const ms = Math.floor(unixMs);
    if (ms !== this.#ms) {
      this.#ms = ms;
      this.#text = bytesOf(new Date(ms).toISOString());
    }
    return this.#text;
  }
}

/**
 * Returns the time at which the Kubernetes owners of the addresses in a message are looked up: the begin of
 * the flow, or the time of the packet.
 */
function ownedAt({ batch, at, kind }: EventRecord): number {
  const type = recordType(kind);
  const isOlder = type !== 'flow' && type !== 'verdict';
  return batch.unixMs(wide(batch.words, at + (isOlder ? AT.opened : AT.timeLow)));
}

function writeAddress(out: ByteWriter, address: Address): void {
  if (typeof address === 'number') out.address(address);
  else out.text(formatAddress(address));
}

function startOfMessage(type: RecordType): Uint8Array {
  return bytesOf(`{"type":"${type}","time":"`);
}

function numberOr(out: ByteWriter, is: boolean, value: number): void {
  if (is) out.number(value);
  else out.put(part.nothing);
}

/**
 * For each number, returns the encoded JSON text `,"field":"name"`. The value is `null` for 0 and for
 * numbers without a name.
 */
function partsBy(numbers: Readonly<Record<string, number>>, field: string): readonly Uint8Array[] {
  const parts = Array.from({ length: 256 }, () => bytesOf(`,"${field}":null`));
  for (const [name, number] of Object.entries(numbers))
    if (number > 0) parts[number] = bytesOf(`,"${field}":"${name}"`);
  return parts;
}
