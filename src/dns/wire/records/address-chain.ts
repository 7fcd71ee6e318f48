import { itemAt } from '#arrays/read.js';
import { u32, u128 } from '#dns/wire/bytes.js';
import { CLASS, FLAG, RCODE, TYPE } from '#dns/wire/dns-numbers.js';
import type { Message, ResourceRecord } from '#dns/wire/message/dns-message.js';
import { isWithin, keyOf, type NameKey, type WireName } from '#dns/wire/name.js';

/** An IPv4 address as a number of 32 bits, or an IPv6 address as a bigint of 128 bits, in host order. */
export type RecordAddress = number | bigint;

/**
 * The addresses of the queried name, found through the CNAME records of one answer.
 * - `chain`: the queried name, then the target of each CNAME record in order.
 * - `ttl`: in seconds, the least TTL of the A or AAAA record and of the CNAME records that lead to this
 *   record.
 * - `complete`: false if the answer is truncated (TC), or if the CNAME records loop, fork (one owner with two
 *   targets) or have more than 16 links. `addresses` is then empty.
 */
export type Found = {
  readonly chain: readonly NameKey[];
  readonly addresses: readonly { readonly address: RecordAddress; readonly ttl: number }[];
  readonly complete: boolean;
};

const LINKS = 16;
const GREATEST_TTL = 0x7fff_ffff;

type Link = { readonly target: NameKey; readonly ttl: number; readonly forks: boolean };
/**
 * The chain of CNAME records in an answer. `names`: the queried name, then the target of each record. `ttls`:
 * for each name in `names`, the least TTL of the CNAME records that lead to this name.
 */
export type Chain = {
  readonly names: readonly NameKey[];
  readonly ttls: readonly number[];
  readonly complete: boolean;
};

/**
 * Returns the addresses of the A and AAAA records of class IN in the answer section whose owner is in
 * `chain`. Returns no addresses if the message has an error, if `chain` is incomplete, or if the question has
 * neither the type of these records nor ANY. `chain` must be the chain of `message`.
 */
export function addressesOf(message: Message, chain = chainOf(message)): Found {
  const { answers } = message;
  const addresses: { address: RecordAddress; ttl: number }[] = [];
  const owner = new OwnerKey(message, chain);
  for (const record of answers) {
    if (!isAddress(record) || record.class !== CLASS.in || !mayHaveAddresses(message, chain, record.type)) continue;
    const place = chain.names.indexOf(owner.of(record));
    if (place < 0) continue;
    addresses.push({ address: addressIn(record), ttl: Math.min(record.ttl, itemAt(chain.ttls, place)) });
  }
  return { chain: chain.names, addresses, complete: chain.complete };
}

export function isAddress({ type }: ResourceRecord): boolean {
  return type === TYPE.a || type === TYPE.aaaa;
}

/** Returns the address of an A or AAAA record. */
export function addressIn({ type, data }: ResourceRecord): RecordAddress {
  return type === TYPE.a ? u32(data, 0) : u128(data, 0);
}

/** Returns the owner names whose records of this type, A or AAAA, `addressesOf` uses. */
export function ownersOfAddresses(message: Message, chain: Chain, type: number): readonly NameKey[] {
  return mayHaveAddresses(message, chain, type) ? chain.names : [];
}

function mayHaveAddresses({ question, rcode }: Message, { complete }: Chain, type: number): boolean {
  const asked = question.class === CLASS.in && (question.type === type || question.type === TYPE.any);
  return asked && complete && rcode === RCODE.noerror;
}

/**
 * Returns for how many seconds an answer may be cached.
 * - Positive answer: the least TTL of the answer section.
 * - Negative answer: also at most the TTL and MINIMUM of the SOA record (RFC 2308, 5).
 * - 0, do not cache: an error, a truncated answer, an incomplete CNAME chain, or a negative answer without an
 *   SOA record.
 */
export function cacheSecondsOf(message: Message, chain = chainOf(message)): number {
  if (message.rcode !== RCODE.noerror && message.rcode !== RCODE.nxdomain) return 0;
  if (!chain.complete) return 0;
  const last = itemAt(chain.names, chain.names.length - 1);
  const { question, answers } = message;
  const owner = new OwnerKey(message, chain);
  let least = GREATEST_TTL;
  let answered = false;
  for (const record of answers) {
    least = Math.min(least, record.ttl);
    if (record.class === question.class && (record.type === question.type || question.type === TYPE.any)) {
      answered ||= owner.of(record) === last;
    }
  }
  if (answered && message.rcode === RCODE.noerror) return least;
  return Math.min(least, negativeTtl(message, last));
}

function negativeTtl({ authorities, question }: Message, name: NameKey): number {
  for (const { type, class: of, name: zone, ttl, data } of authorities) {
    if (type !== TYPE.soa || of !== question.class || !isWithin(name, keyOf(zone))) continue;
    return Math.min(ttl, u32(data, data.length - 4));
  }
  return 0;
}

/**
 * Returns the chain of CNAME records that begins at the queried name. `key` must be the key of that name.
 */
export function chainOf(message: Message, key = keyOf(message.question.name)): Chain {
  const { question } = message;
  const names = [key];
  const ttls = [GREATEST_TTL];
  const chain = (complete: boolean): Chain => ({ names, ttls, complete });
  if ((message.flags & FLAG.tc) !== 0) return chain(false);
  if (question.type === TYPE.cname || question.type === TYPE.any) return chain(true);
  const links = linksOf(message);
  if (links === null) return chain(true);
  for (let name = names[0], ttl = GREATEST_TTL; ; ) {
    const link = links.get(name as NameKey);
    if (link === undefined) return chain(true);
    if (link.forks || names.length > LINKS || names.includes(link.target)) return chain(false);
    name = link.target;
    ttl = Math.min(ttl, link.ttl);
    names.push(name);
    ttls.push(ttl);
  }
}

function linksOf({ answers, question }: Message): Map<NameKey, Link> | null {
  let links: Map<NameKey, Link> | null = null;
  for (const record of answers) {
    if (record.type !== TYPE.cname || record.class !== question.class) continue;
    links ??= new Map<NameKey, Link>();
    const owner = keyOf(record.name);
    const target = keyOf(record.data);
    const other = links.get(owner);
    const forks = other !== undefined && (other.forks || other.target !== target);
    links.set(owner, { target, ttl: Math.min(record.ttl, other?.ttl ?? GREATEST_TTL), forks });
  }
  return links;
}

/**
 * Computes the key of a record's owner name. Adjacent records with the same owner usually share one
 * `Uint8Array` for the name, so `of` returns the last key again without a computation.
 */
export class OwnerKey {
  #name: WireName;
  #key: NameKey;

  constructor({ question }: Message, { names }: Chain) {
    this.#name = question.name;
    this.#key = itemAt(names, 0);
  }

  of(record: ResourceRecord): NameKey {
    if (record.name !== this.#name) {
      this.#name = record.name;
      this.#key = keyOf(record.name);
    }
    return this.#key;
  }
}
