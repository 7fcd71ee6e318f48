import type { Prefix } from '#contracts/policy/policy-model.js';

/**
 * A parsed network. `hostBits`: the text had non-zero bits after the prefix length, as in `10.0.0.1/8`; the
 * parser cleared these bits.
 */
export type ParsedCidr = { readonly prefix: Prefix; readonly hostBits: boolean };

/**
 * Parses an IPv4 address: four decimal numbers without leading zeros. Returns undefined for any other text.
 */
export function parseAddress(text: string): number | undefined {
  const end = text.length;
  if (end > 15) return undefined;
  return octets(text, end);
}

/**
 * Parses an IPv4 network: an address with `/0` to `/32`, or an address alone, which means /32. Returns
 * undefined for any other text.
 */
export function parseCidr(text: string): ParsedCidr | undefined {
  if (text.length > 18) return undefined;
  const slash = text.indexOf('/');
  const address = octets(text, slash === -1 ? text.length : slash);
  if (address === undefined) return undefined;
  if (slash === -1) return { prefix: { address, length: 32 }, hostBits: false };
  const length = decimal(text, slash + 1, text.length, 32);
  if (length === undefined) return undefined;
  const masked = mask(address, length);
  return { prefix: { address: masked, length }, hostBits: masked !== address };
}

export function mask(address: number, length: number): number {
  return length === 0 ? 0 : (address & (-1 << (32 - length))) >>> 0;
}

export function lastAddress({ address, length }: Prefix): number {
  return address + 2 ** (32 - length) - 1;
}

export function containsPrefix(outer: Prefix, inner: Prefix): boolean {
  return outer.length <= inner.length && mask(inner.address, outer.length) === outer.address;
}

export function formatAddress(address: number): string {
  return `${address >>> 24}.${(address >>> 16) & 255}.${(address >>> 8) & 255}.${address & 255}`;
}

export function formatPrefix({ address, length }: Prefix): string {
  return `${formatAddress(address)}/${length}`;
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

export function covers(prefix: Prefix, address: number): boolean {
  return mask(address, prefix.length) === prefix.address;
}
