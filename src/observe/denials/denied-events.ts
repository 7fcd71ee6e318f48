import { familyOf, formatAddress } from '#addresses/ip-address.js';
import { u32At } from '#arrays/read.js';
import { DROP_REASON, namesByNumber } from '#contracts/datapath/datapath-numbers.js';
import type { End } from '#contracts/datapath/translation.js';
import type { SeenLookup, SeenRebinding } from '#contracts/dns/seen-lookup.js';
import type { OwnerName } from '#contracts/kubernetes/address-owner.js';
import { type Address, PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';
import { VERDICT_NUMBER, verdictOf } from '#contracts/policy/verdict-word.js';
import type { EventBatch } from '#dataplane/events/batch.js';
import { EVENT_TYPE } from '#dataplane/events/event.js';
import { emptyIdentity } from '#observe/findings/empty-identity.js';
import type { FindingDelta } from '#observe/findings/finding.js';
import { gap } from '#observe/findings/gap.js';
import { type AddressOwners, ownersKey } from '#observe/names/address-owners.js';
import { type RuleNameResolver, sourceGroupsOf } from '#observe/names/rule-name-resolver.js';
import { AT, addressAt, isIcmpRecord, isOfIpv6, startOf, wide } from '#observe/wiretap/messages/event-record.js';

/**
 * `DETAILED` is the maximum number of findings with addresses between two calls of `drain`. At this maximum,
 * further events are merged by rule into coarse findings, which have no addresses and ports. `COARSE` limits
 * the number of coarse findings.
 */
const DETAILED = 4_096;
const COARSE = 2_048;

/**
 * Where events were lost. `dataplane`: between the kernel and the observer thread, or in this class because
 * both limits of findings were reached. `source_share`: in the BPF program, because the source of the packets
 * had used up its event budget.
 */
type LostAt = 'dataplane' | 'source_share';
type Pending = {
  readonly hit: number;
  readonly check: number;
  /**
   * The addresses of the packet. Both are null in a coarse finding, which combines packets with different
   * addresses.
   */
  readonly source: Address | null;
  readonly destination: Address | null;
  readonly sourceOwner: OwnerName | null;
  readonly destinationOwner: OwnerName | null;
  readonly port: number | null;
  readonly wire: End<Address> | null;
  /**
   * The verdict, drop reason and protocol in one 32-bit word: the word `AT.kind` of the event record
   * (event-record.ts), with the event type set to 0.
   */
  readonly kind: number;
  /**
   * ICMP type | ICMP code << 8; -1 if the finding is not about ICMP, or if it combines packets with different
   * addresses (coarse).
   */
  readonly icmp: number;
  readonly isIcmp: boolean;
  readonly passed: boolean;
  epoch: number;
  firstMs: number;
  lastMs: number;
  count: number;
};

const HAS_PORTS = new Set<number>(PORT_PROTOCOLS);
const REASONS = namesByNumber(DROP_REASON);
/**
 * Selects the verdict, drop reason and protocol in the 32-bit word at `AT.kind`, and clears the event type.
 */
const KIND_BITS = 0xffff_ff00;

/**
 * Collects findings from events of the datapath: denied or dropped packets, and packets or flows that audit
 * mode allowed despite a deny. Merges equal events into one finding. Limits the number of findings between
 * two calls of `drain`, to bound memory.
 */
export class DeniedEvents {
  readonly #ruleNameResolver: RuleNameResolver;
  readonly #owners: AddressOwners;
  #detailed = new Map<string, Pending>();
  #coarse = new Map<string, Pending>();
  #lost = new Map<LostAt, { count: number; firstMs: number; lastMs: number }>();
  /**
   * Both fields count events since this object was created. `merged`: events that became part of a finding.
   * `overflowed`: events that got no finding with addresses because `DETAILED` was reached; each of them
   * became part of a coarse finding or was lost.
   */
  merged = 0;
  overflowed = 0;

  constructor(ruleNameResolver: RuleNameResolver, owners: AddressOwners) {
    this.#ruleNameResolver = ruleNameResolver;
    this.#owners = owners;
  }

  add(batch: EventBatch, nowMs: number): void {
    const { words, count } = batch;
    for (let index = 0; index < count; index++) {
      const at = startOf(index);
      if (isFinding(u32At(words, at + AT.kind))) this.#add(batch, index, at);
    }
    if (batch.lost > 0) this.#lose('dataplane', batch.lost, nowMs);
    if (batch.suppressed > 0) this.#lose('source_share', batch.suppressed, nowMs);
  }

  /**
   * Returns the findings collected since the previous call of `drain`, and removes them from this object. For
   * lost events, adds one `gap` finding for each value of `LostAt`.
   */
  drain(): readonly FindingDelta[] {
    const drained = [...this.#detailed.values(), ...this.#coarse.values()].map((pending) => this.#delta(pending));
    for (const [where, { count, firstMs, lastMs }] of this.#lost) drained.push(gap(where, count, firstMs, lastMs));
    this.#detailed = new Map();
    this.#coarse = new Map();
    this.#lost = new Map();
    return drained;
  }

  #add(batch: EventBatch, index: number, at: number): void {
    const { words } = batch;
    const hit = u32At(words, at + AT.hit);
    const check = u32At(words, at + AT.hitCheck);
    const recordDetails = u32At(words, at + AT.details);
    const source = addressAt(words, at + AT.source, recordDetails);
    const destination = addressAt(words, at + AT.destination, recordDetails);
    const kind = (u32At(words, at + AT.kind) & KIND_BITS) >>> 0;
    const type = u32At(words, at + AT.kind) & 0xff;
    const passed = type === EVENT_TYPE.passed || type === EVENT_TYPE.flow_opened;
    const protocol = kind >>> 24;
    const isIcmp = isIcmpRecord(kind, recordDetails);
    const icmp = isIcmp ? icmpIn(recordDetails, type) : -1;
    const port = HAS_PORTS.has(protocol) ? u32At(words, at + AT.ports) >>> 16 : 0;
    const atMs = Math.floor(batch.unixMs(wide(words, at + AT.timeLow)));
    const wire = batch.wireDestination(index);
    const sourceOwner = this.#owners.of(source, atMs);
    const destinationOwner = this.#owners.of(destination, atMs);
    const epoch = u32At(words, at + AT.epoch);
    const suffix = `${hit} ${check} ${kind} ${passed ? 1 : 0} ${isIcmp ? 1 : 0}`;
    const ofWire = wire === null ? '' : ` ${wire.address} ${wire.port}`;
    // Addresses of the two families can be the same number.
    const ends = `${familyOf(source)} ${source} ${destination}`;
    const key = `${ends} ${port} ${icmp} ${suffix}${ofWire}${ownersKey(sourceOwner, destinationOwner)}`;
    this.merged++;
    const known = this.#detailed.get(key);
    if (known !== undefined) {
      again(known, epoch, atMs);
      return;
    }
    const fresh = {
      hit,
      check,
      kind,
      isIcmp,
      passed,
      epoch,
      firstMs: atMs,
      lastMs: atMs,
      count: 1,
    };
    if (this.#detailed.size < DETAILED) {
      this.#detailed.set(key, {
        ...fresh,
        source,
        destination,
        sourceOwner,
        destinationOwner,
        port: HAS_PORTS.has(protocol) ? port : null,
        wire,
        icmp,
      });
      return;
    }
    this.overflowed++;
    const less = this.#coarse.get(suffix);
    if (less !== undefined) {
      again(less, epoch, atMs);
      return;
    }
    if (this.#coarse.size < COARSE) {
      const nowhere = { source: null, destination: null, sourceOwner: null, destinationOwner: null, port: null };
      this.#coarse.set(suffix, { ...fresh, ...nowhere, wire: null, icmp: -1 });
      return;
    }
    this.merged--;
    this.#lose('dataplane', 1, atMs);
  }

  #lose(where: LostAt, count: number, atMs: number): void {
    const lost = this.#lost.get(where) ?? { count: 0, firstMs: atMs, lastMs: atMs };
    lost.count += count;
    lost.lastMs = atMs;
    this.#lost.set(where, lost);
  }

  #delta(pending: Pending): FindingDelta {
    const { hit, check, source, destination, port, wire, kind, icmp, isIcmp, passed, epoch, ...more } = pending;
    const protocol = kind >>> 24;
    const reason = REASONS[(kind >>> 16) & 0xff];
    const decider = this.#ruleNameResolver.ofHit(hit, check);
    return {
      ...emptyIdentity,
      ...decider,
      ...sourceGroupsOf(this.#ruleNameResolver, decider, source, pending.sourceOwner),
      type: isIcmp ? 'icmp_deny' : 'l4_deny',
      source: addressText(source),
      destination: addressText(destination),
      destinationPort: port,
      wireDestination: wire && { address: formatAddress(wire.address), port: port === null ? null : wire.port },
      protocol,
      icmpType: icmp >= 0 ? icmp & 0xff : null,
      icmpCode: icmp >= 0 ? icmp >>> 8 : null,
      dropReason: reason === undefined || reason === 'none' ? null : reason,
      effectiveAction: passed ? 'allow' : 'deny',
      generation: this.#ruleNameResolver.generationOf(epoch),
      ...more,
    };
  }
}

const ECHO_REQUEST = 8;
const ECHO_REQUEST_OF_IPV6 = 128;

/**
 * Returns ICMP type | ICMP code << 8 of a record. The record of an opened ICMP flow has none: only an echo
 * request opens an ICMP flow, so this is the type.
 */
function icmpIn(details: number, type: number): number {
  if (type !== EVENT_TYPE.flow_opened) return details & 0xffff;
  return isOfIpv6(details) ? ECHO_REQUEST_OF_IPV6 : ECHO_REQUEST;
}

const addressText = (address: Address | null): string | null => (address === null ? null : formatAddress(address));

/**
 * Returns whether the event becomes a finding: a denied or dropped packet, or a packet or flow that audit
 * mode allowed despite a deny (D4). `kind` is the 32-bit word at `AT.kind` of the event record.
 */
function isFinding(kind: number): boolean {
  switch (kind & 0xff) {
    case EVENT_TYPE.denied:
    case EVENT_TYPE.dropped:
      return true;
    case EVENT_TYPE.flow_opened:
    case EVENT_TYPE.passed:
      return ((kind >>> 8) & 0xff) > VERDICT_NUMBER.allow;
    default:
      return false;
  }
}

function again(pending: Pending, epoch: number, atMs: number): void {
  pending.count++;
  pending.epoch = epoch;
  pending.lastMs = Math.max(pending.lastMs, atMs);
}

/** A finding for each DNS lookup that the policy denied, or that audit mode allowed despite a deny. */
export function findingsOfLookups(
  lookups: readonly SeenLookup[],
  ruleNameResolver: RuleNameResolver,
  owners: AddressOwners,
): readonly FindingDelta[] {
  return lookups
    .filter(({ word }) => verdictOf(word) !== 'allow')
    .map(({ source, hostname, generation, word, count, lastMs }) => {
      const decider = ruleNameResolver.ofWord(generation, word);
      const sourceOwner = owners.of(source, lastMs);
      return {
        ...emptyIdentity,
        ...decider,
        ...sourceGroupsOf(ruleNameResolver, decider, source, sourceOwner),
        type: 'dns_deny',
        source: formatAddress(source),
        sourceOwner,
        hostname,
        effectiveAction: verdictOf(word) === 'audit' ? 'allow' : 'deny',
        generation,
        firstMs: Math.floor(lastMs),
        lastMs: Math.floor(lastMs),
        count,
      };
    });
}

/** Returns a finding for each address that the DNS rebinding protection removed from an answer. */
export function findingsOfRebindings(
  rebindings: readonly SeenRebinding[],
  owners: AddressOwners,
): readonly FindingDelta[] {
  return rebindings.map(({ source, hostname, address, reason, generation, count, lastMs }) => ({
    ...emptyIdentity,
    type: 'dns_deny',
    source: formatAddress(source),
    destination: formatAddress(address),
    sourceOwner: owners.of(source, lastMs),
    destinationOwner: owners.of(address, lastMs),
    hostname,
    reason: `rebinding: ${reason}`,
    effectiveAction: 'deny',
    generation,
    firstMs: Math.floor(lastMs),
    lastMs: Math.floor(lastMs),
    count,
  }));
}
