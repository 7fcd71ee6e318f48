import { covers } from '#policy/covers.js';
import { parseCidr } from '#policy/ipv4.js';
import type { Prefix } from '#policy/model.js';

/** Blocks that no name stands for on another machine: "this" network, loopback, link-local, multicast, reserved. */
const NOBODYS = prefixes('0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '240.0.0.0/4');

/** Blocks that are not public (RFC 6890). */
const NOT_PUBLIC = [
  ...NOBODYS,
  ...prefixes('10.0.0.0/8', '100.64.0.0/10', '172.16.0.0/12', '192.0.0.0/24', '192.168.0.0/16', '198.18.0.0/15'),
];

export function isPublic(address: number): boolean {
  return !NOT_PUBLIC.some((block) => covers(block, address));
}

export function isNobodys(address: number): boolean {
  return NOBODYS.some((block) => covers(block, address));
}

function prefixes(...texts: readonly string[]): readonly Prefix[] {
  return texts.map((text) => {
    const parsed = parseCidr(text);
    if (parsed === undefined) throw new RangeError(`${text} is no network`);
    return parsed.prefix;
  });
}
