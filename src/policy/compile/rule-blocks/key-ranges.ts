import { IPPROTO, icmpOf, PORT_PROTOCOLS, type Range, type Rule } from '#contracts/policy/policy-model.js';
import { portMapKey } from '#contracts/policy/program.js';
import { mergedRanges } from '#policy/model/intervals.js';

const EVERY_KEY: Range = { low: 0, high: portMapKey(255, 0xffff) };

/**
 * Returns the ascending ranges of `portMapKey` values (protocol with destination port, or with ICMP type and
 * code) that a rule matches. Source ports restrict only the protocols of the ranges. Hostname and
 * destinations have no effect on the ranges.
 */
export function keyRanges(rule: Rule): readonly Range[] {
  const withPorts = rule.sourcePorts.length > 0 || rule.destinationPorts.length > 0;
  const icmpOnly = rule.icmpTypes.length > 0 || rule.icmpCodes.length > 0;
  if (rule.protocol === 'any' && !withPorts && !icmpOnly && rule.tls === undefined) return [EVERY_KEY];
  const low16 = icmpOnly ? icmpRanges(rule) : mergedRanges(rule.destinationPorts);
  const ranges: Range[] = [];
  for (const protocol of candidates(rule.protocol, withPorts, icmpOnly)) {
    if (withPorts && !PORT_PROTOCOLS.includes(protocol)) continue;
    if (icmpOnly && protocol !== icmpOf(rule)) continue;
    if (rule.tls !== undefined && protocol !== IPPROTO.tcp) continue;
    if (low16.length === 0) ranges.push({ low: portMapKey(protocol, 0), high: portMapKey(protocol, 0xffff) });
    for (const { low, high } of low16)
      ranges.push({ low: portMapKey(protocol, low), high: portMapKey(protocol, high) });
  }
  return ranges;
}

function candidates(protocol: number | 'any', withPorts: boolean, icmpOnly: boolean): readonly number[] {
  if (protocol !== 'any') return [protocol];
  if (icmpOnly) return [IPPROTO.icmp];
  return withPorts ? PORT_PROTOCOLS : [IPPROTO.tcp];
}

const EVERY_TYPE: readonly Range[] = [{ low: 0, high: 255 }];

function icmpRanges({ icmpTypes, icmpCodes }: Rule): readonly Range[] {
  const types = icmpTypes.length > 0 ? rangesOf(icmpTypes) : EVERY_TYPE;
  const codes = rangesOf(icmpCodes);
  const ranges: { low: number; high: number }[] = [];
  if (codes.length === 0) return types.map(({ low, high }) => ({ low: low * 256, high: high * 256 + 255 }));
  for (const { low: firstType, high: lastType } of types) {
    for (let type = firstType; type <= lastType; type++) {
      for (const code of codes) {
        const low = type * 256 + code.low;
        const high = type * 256 + code.high;
        const last = ranges.at(-1);
        if (last !== undefined && last.high + 1 === low) last.high = high;
        else ranges.push({ low, high });
      }
    }
  }
  return ranges;
}

function rangesOf(numbers: readonly number[]): readonly Range[] {
  return mergedRanges(numbers.map((number) => ({ low: number, high: number })));
}
