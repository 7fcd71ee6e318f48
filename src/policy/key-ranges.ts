import { IPPROTO, PORT_PROTOCOLS, type Range, type Rule } from './model.js';
import { leafKey } from './program.js';
import { mergedRanges } from './ranges.js';

const EVERY_KEY: Range = { low: 0, high: leafKey(255, 0xffff) };

/** The leaf keys that a rule matches, ascending. Source ports, hostname and destinations are not among them. */
export function keyRanges(rule: Rule): readonly Range[] {
  const withPorts = rule.sourcePorts.length > 0 || rule.destinationPorts.length > 0;
  const icmpOnly = rule.icmpTypes.length > 0 || rule.icmpCodes.length > 0;
  if (rule.protocol === 'any' && !withPorts && !icmpOnly && rule.tls === undefined) return [EVERY_KEY];
  const low16 = icmpOnly ? icmpRanges(rule) : mergedRanges(rule.destinationPorts);
  const ranges: Range[] = [];
  for (const protocol of candidates(rule.protocol, withPorts, icmpOnly)) {
    if (withPorts && !PORT_PROTOCOLS.includes(protocol)) continue;
    if (icmpOnly && protocol !== IPPROTO.icmp) continue;
    if (rule.tls !== undefined && protocol !== IPPROTO.tcp) continue;
    if (low16.length === 0) ranges.push({ low: leafKey(protocol, 0), high: leafKey(protocol, 0xffff) });
    for (const { low, high } of low16) ranges.push({ low: leafKey(protocol, low), high: leafKey(protocol, high) });
  }
  return ranges;
}

function candidates(protocol: number | 'any', withPorts: boolean, icmpOnly: boolean): readonly number[] {
  if (protocol !== 'any') return [protocol];
  if (icmpOnly) return [IPPROTO.icmp];
  return withPorts ? PORT_PROTOCOLS : [IPPROTO.tcp];
}

function icmpRanges({ icmpTypes, icmpCodes }: Rule): readonly Range[] {
  const codes = mergedRanges(icmpCodes.map((code) => ({ low: code, high: code })));
  const ranges: Range[] = [];
  const types = icmpTypes.length > 0 ? new Set(icmpTypes) : Array.from({ length: 256 }, (_, type) => type);
  for (const type of types) {
    if (codes.length === 0) ranges.push({ low: type * 256, high: type * 256 + 255 });
    for (const { low, high } of codes) ranges.push({ low: type * 256 + low, high: type * 256 + high });
  }
  return mergedRanges(ranges);
}
