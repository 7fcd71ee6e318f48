import type { Address, AddressOf, Family, Prefix } from '#contracts/policy/policy-model.js';

/**
 * A parsed network. `hostBits`: the text had non-zero bits after the prefix length, as in `10.0.0.1/8`; the
 * parser cleared these bits.
 */
export type ParsedCidr<A extends Address = Address> = { readonly prefix: Prefix<A>; readonly hostBits: boolean };

/** Returns the number of bits of an address of this family: 32 or 128. */
export function bitsOf(address: Address): number {
  return typeof address === 'number' ? 32 : 128;
}

/**
 * Parses an IPv4 address (four decimal numbers without leading zeros) or an IPv6 address (RFC 4291, 2.2).
 * Returns undefined for any other text, and for an IPv6 address with a zone id.
 */
export function parseAddress(text: string): Address | undefined {
  return text.includes(':') ? parseIpv6Address(text) : parseIpv4Address(text);
}

/** Parses an IPv4 address. Returns undefined for any other text. */
export function parseIpv4Address(text: string): number | undefined {
  const end = text.length;
  if (end > 15) return undefined;
  return octets(text, end);
}

/**
 * Parses a network of either family: an address with a prefix length, or an address alone, which means the
 * longest length of its family. Returns undefined for any other text.
 */
export function parseCidr(text: string): ParsedCidr | undefined {
  return text.includes(':') ? cidr(text, parseIpv6Address, 128) : parseIpv4Cidr(text);
}

/** Parses an IPv4 network as `parseCidr`. Returns undefined for any other text. */
export function parseIpv4Cidr(text: string): ParsedCidr<number> | undefined {
  return cidr(text, parseIpv4Address, 32);
}

function cidr<A extends Address>(
  text: string,
  parse: (text: string) => A | undefined,
  bits: number,
): ParsedCidr<A> | undefined {
  const slash = text.indexOf('/');
  const address = parse(slash === -1 ? text : text.slice(0, slash));
  if (address === undefined) return undefined;
  const length = slash === -1 ? bits : decimal(text, slash + 1, text.length, bits);
  if (length === undefined) return undefined;
  const masked = mask(address, length);
  return { prefix: { address: masked, length }, hostBits: masked !== address };
}

/** Returns an address with all bits after the first `length` bits cleared. */
export function mask<A extends Address>(address: A, length: number): A;
export function mask(address: Address, length: number): Address {
  if (typeof address === 'number') return length === 0 ? 0 : (address & (-1 << (32 - length))) >>> 0;
  const hostBits = BigInt(128 - length);
  return (address >> hostBits) << hostBits;
}

export function lastAddress<A extends Address>(prefix: Prefix<A>): A;
export function lastAddress({ address, length }: Prefix): Address {
  if (typeof address === 'number') return address + 2 ** (32 - length) - 1;
  return address + (1n << BigInt(128 - length)) - 1n;
}

/**
 * Returns the address after the last address of a prefix; undefined if the prefix ends with the last address
 * of its family.
 */
export function addressAfter<A extends Address>(prefix: Prefix<A>): A | undefined;
export function addressAfter(prefix: Prefix): Address | undefined {
  const last = lastAddress(prefix);
  return last === LAST_ADDRESS[familyOf(last)] ? undefined : nextAddress(last);
}

/** The last address of each family. */
export const LAST_ADDRESS: Readonly<Record<Family, Address>> = { ipv4: 0xffff_ffff, ipv6: (1n << 128n) - 1n };

/** Returns the next address. The first address of a family follows its last. */
export function nextAddress<A extends Address>(address: A): A;
export function nextAddress(address: Address): Address {
  return typeof address === 'number' ? (address + 1) >>> 0 : BigInt.asUintN(128, address + 1n);
}

/** Returns the previous address. The last address of a family precedes its first. */
export function previousAddress<A extends Address>(address: A): A;
export function previousAddress(address: Address): Address {
  return typeof address === 'number' ? (address - 1) >>> 0 : BigInt.asUintN(128, address - 1n);
}

/** Compares two addresses, for a sort. Every IPv4 address precedes every IPv6 address. */
export function compareAddresses(one: Address, other: Address): number {
  if (typeof one !== typeof other) return typeof one === 'number' ? -1 : 1;
  return one < other ? -1 : one > other ? 1 : 0;
}

/** Sorts addresses of one family. */
export function ascending<A extends Address>(addresses: readonly A[]): readonly A[];
export function ascending(addresses: readonly Address[]): readonly Address[] {
  // A typed array is sorted much faster than an array with a comparator.
  if (addresses.every((address) => typeof address === 'number')) return [...Float64Array.from(addresses).sort()];
  return [...addresses].sort(compareAddresses);
}

export function containsPrefix(outer: Prefix, inner: Prefix): boolean {
  return outer.length <= inner.length && mask(inner.address, outer.length) === outer.address;
}

/** Returns whether an IPv6 address is in fe80::/10. */
export function isLinkLocal(address: bigint): boolean {
  return address >> 118n === 0xfe80n >> 6n;
}

export function covers(prefix: Prefix, address: Address): boolean {
  return mask(address, prefix.length) === prefix.address;
}

/** Returns the text of an address: IPv6 as in RFC 5952, with dotted decimals for an IPv4-mapped address. */
export function formatAddress(address: Address): string {
  return typeof address === 'number' ? formatIpv4(address) : formatIpv6(address);
}

export function formatPrefix({ address, length }: Prefix): string {
  return `${formatAddress(address)}/${length}`;
}

/** The prefix that contains every address of a family, as a list. */
export const EVERY_ADDRESS: Readonly<Record<Family, readonly Prefix[]>> = {
  ipv4: [{ address: 0, length: 0 }],
  ipv6: [{ address: 0n, length: 0 }],
};

/** Whether one of the prefixes contains every address of a family. */
export function containsEverything(prefixes: readonly Prefix[], family: Family): boolean {
  return prefixes.some(({ address, length }) => length === 0 && familyOf(address) === family);
}

export function familyOf(address: Address): Family {
  return typeof address === 'number' ? 'ipv4' : 'ipv6';
}

/** Returns the prefixes of one family. Returns the list itself if all its prefixes are of this family. */
export function ofFamily<F extends Family>(prefixes: readonly Prefix[], family: F): readonly Prefix<AddressOf<F>>[] {
  const isOfFamily = (prefix: Prefix): prefix is Prefix<AddressOf<F>> => familyOf(prefix.address) === family;
  return prefixes.every(isOfFamily) ? prefixes : prefixes.filter(isOfFamily);
}

/**
 * Returns the part of a source address for which limits count: an IPv4 address, or the upper 64 bits of an
 * IPv6 address, because a host can have any address of its /64 prefix.
 */
export function limitedPart(source: Address): Address {
  return typeof source === 'number' ? source : source >> 64n;
}

/** Returns a word of 32 bits that depends on all bits of an address. For hash tables. */
export function foldedWord(address: Address): number {
  if (typeof address === 'number') return address;
  const half = address ^ (address >> 64n);
  return Number(BigInt.asUintN(32, half ^ (half >> 32n)));
}

/** The prefix of IPv4-mapped addresses, `::ffff:0:0/96` (RFC 4291, 2.5.5.2). */
const IPV4_MAPPED: Prefix<bigint> = { address: 0xffff_0000_0000n, length: 96 };

/**
 * Returns the IPv4 prefix that a prefix of IPv4-mapped addresses stands for; undefined for any other prefix.
 */
export function ipv4MappedBy({ address, length }: Prefix): Prefix<number> | undefined {
  if (typeof address === 'number' || length < IPV4_MAPPED.length || !covers(IPV4_MAPPED, address)) return undefined;
  return { address: Number(address & 0xffff_ffffn), length: length - IPV4_MAPPED.length };
}

const WORDS = 8;
const WORD_BITS = 16n;
const WORD = /^[0-9a-f]{1,4}$/i;

function parseIpv6Address(text: string): bigint | undefined {
  const hex = withoutDots(text);
  const [before, after, ...more] = hex.split('::').map((half) => (half === '' ? [] : half.split(':')));
  if (before === undefined || more.length > 0) return undefined;
  const zeros = WORDS - before.length - (after?.length ?? 0);
  // `::` stands for at least one word.
  if (after === undefined ? zeros !== 0 : zeros < 1) return undefined;
  const words = [...before, ...Array.from({ length: zeros }, () => '0'), ...(after ?? [])];
  if (!words.every((word) => WORD.test(word))) return undefined;
  return BigInt(`0x${words.map((word) => word.padStart(4, '0')).join('')}`);
}

/** Writes dotted decimals at the end of an IPv6 address as two words. Returns any other text unchanged. */
function withoutDots(text: string): string {
  const start = text.lastIndexOf(':') + 1;
  const last = parseIpv4Address(text.slice(start));
  if (last === undefined) return text;
  return `${text.slice(0, start)}${(last >>> 16).toString(16)}:${(last & 0xffff).toString(16)}`;
}

function formatIpv6(address: bigint): string {
  if (covers(IPV4_MAPPED, address)) return `::ffff:${formatIpv4(Number(address & 0xffff_ffffn))}`;
  const words: string[] = [];
  for (let rest = address; words.length < WORDS; rest >>= WORD_BITS) words.unshift((rest & 0xffffn).toString(16));
  const { start, length } = longestZeros(words);
  if (length < 2) return words.join(':');
  return `${words.slice(0, start).join(':')}::${words.slice(start + length).join(':')}`;
}

/** Returns the longest run of zero words, and of runs with the same length the first. */
function longestZeros(words: readonly string[]): { readonly start: number; readonly length: number } {
  let longest = { start: 0, length: 0 };
  let start = 0;
  for (let at = 0; at < words.length; at++) {
    if (words[at] !== '0') start = at + 1;
    else if (at + 1 - start > longest.length) longest = { start, length: at + 1 - start };
  }
  return longest;
}

function formatIpv4(address: number): string {
  return `${address >>> 24}.${(address >>> 16) & 255}.${(address >>> 8) & 255}.${address & 255}`;
}

function octets(text: string, end: number): number | undefined {
  let address = 0;
  let start = 0;
  for (let part = 0; part < 4; part++) {
    let stop = part === 3 ? end : text.indexOf('.', start);
    if (stop === -1 || stop > end) stop = end;
    const octet = decimal(text, start, stop, 255);
    if (octet === undefined) return undefined;
    address = address * 256 + octet;
    start = stop + 1;
  }
  return start === end + 1 ? address : undefined;
}

function decimal(text: string, start: number, end: number, highest: number): number | undefined {
  if (start >= end || end - start > 3) return undefined;
  if (end - start > 1 && text.charCodeAt(start) === 0x30) return undefined;
  let value = 0;
  for (let at = start; at < end; at++) {
    const digit = text.charCodeAt(at) - 0x30;
    if (digit < 0 || digit > 9) return undefined;
    value = value * 10 + digit;
  }
  return value <= highest ? value : undefined;
}
