import { isIPv6, SocketAddress } from 'node:net';
import type { Prefix } from '#contracts/policy/policy-model.js';
import { formatAddress, mask, parseIpv4Address, parseIpv4Cidr } from '#policy/model/ip-address.js';

type Ipv6Prefix = { readonly ipv6: bigint; readonly length: number };
/** An IPv4 or IPv6 network in a filter of finding addresses. */
export type Network = Prefix<number> | Ipv6Prefix;

const IPV6_BITS = 128;

/**
 * Parses an address, or an address with a prefix length. Clears the bits after the prefix. Returns undefined
 * if the text is neither.
 */
export function readNetwork(text: string): Network | undefined {
  const ipv4 = parseIpv4Cidr(text)?.prefix;
  if (ipv4 !== undefined) return ipv4;
  const [, address = '', digits = `${IPV6_BITS}`] = /^([^/%]+)(?:\/(0|[1-9]\d{0,2}))?$/.exec(text) ?? [];
  const [value, length] = [parseIpv6(address), Number(digits)];
  if (value === undefined || length > IPV6_BITS) return undefined;
  return { ipv6: firstBits(value, length), length };
}

export function isWithin(network: Network, address: string): boolean {
  if ('ipv6' in network) {
    const value = parseIpv6(address);
    return value !== undefined && firstBits(value, network.length) === network.ipv6;
  }
  const value = parseIpv4Address(address);
  return value !== undefined && mask(value, network.length) === network.address;
}

/**
 * Returns the address of a network that contains only one address. Returns undefined if the network contains
 * several addresses.
 */
export function onlyAddress(network: Network): string | undefined {
  if ('ipv6' in network) return network.length === IPV6_BITS ? formatIpv6(network.ipv6) : undefined;
  return network.length === 32 ? formatAddress(network.address) : undefined;
}

function firstBits(value: bigint, length: number): bigint {
  const rest = BigInt(IPV6_BITS - length);
  return (value >> rest) << rest;
}

function parseIpv6(text: string): bigint | undefined {
  if (!isIPv6(text) || text.includes('%')) return undefined;
  // The URL parser normalizes an IPv6 address: it converts a dotted IPv4 suffix such as in `::ffff:192.0.2.1`
  // to hexadecimal.
  const plain = new URL(`http://[${text}]`).hostname.slice(1, -1);
  const [head = [], tail] = plain.split('::').map((part) => part.split(':').filter((group) => group !== ''));
  const groups =
    tail === undefined ? head : [...head, ...Array<string>(8 - head.length - tail.length).fill('0'), ...tail];
  return [...groups].reduce((value, group) => (value << 16n) | BigInt(`0x${group}`), 0n);
}

function formatIpv6(value: bigint): string {
  const groups = Array.from({ length: 8 }, (_, at) => ((value >> BigInt(16 * (7 - at))) & 0xffffn).toString(16));
  return new SocketAddress({ family: 'ipv6', address: groups.join(':') }).address;
}
