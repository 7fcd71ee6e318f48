import type { ValueSet } from '#analysis/engine/pieces.js';
import { KEYS, PORTS } from '#analysis/engine/rule-diagrams.js';
import { itemAt } from '#arrays/read.js';
import type { ServiceSet } from '#contracts/analysis/flow-region.js';
import { type Family, ICMP, IPPROTO, isIcmp, PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';

const LISTED = 12;
const LOW16 = 0x1_0000;
type Names = ReadonlyMap<number, string>;
const NAMES: Names = new Map(Object.entries(IPPROTO).map(([name, number]) => [number, name]));
/** The names of protocols in each family. An IPv6 packet with the protocol `icmp` is no ICMP message. */
const NAMES_IN: Readonly<Record<Family, Names>> = {
  ipv4: NAMES,
  ipv6: new Map([...NAMES].filter(([protocol]) => protocol !== IPPROTO.icmp)),
};

/** Returns the values of `portMapKey` in a set as texts, or as what is missing, whichever is shorter. */
export function serviceSet(keys: ValueSet, family: Family): ServiceSet {
  const names = NAMES_IN[family];
  const services = textsOf(keys, names);
  const except = textsOf(complement(keys, KEYS), names);
  return except.length < services.length
    ? { services: ['any'], except: except.slice(0, LISTED), omitted: Math.max(0, except.length - LISTED) }
    : { services: services.slice(0, LISTED), except: [], omitted: Math.max(0, services.length - LISTED) };
}

export function serviceText({ services, except, omitted }: ServiceSet): string {
  const more = omitted > 0 ? ` and ${omitted} more` : '';
  return except.length === 0
    ? `${services.join(',')}${more}`
    : `${services.join(',')} except ${except.join(',')}${more}`;
}

/** Returns the source ports of a set as texts; none if the set has every port. */
export function portTexts(ports: ValueSet): string[] {
  if (ports.length === 2 && ports[0] === 0 && ports[1] === PORTS) return [];
  return rangesOf(ports).map(([low, high]) => between(low, high));
}

/** Returns the number of flows with these keys and source ports between two addresses of a family. */
export function flowsOf(keys: ValueSet, sourcePorts: ValueSet, family: Family): bigint {
  const ports = BigInt(rangesOf(sourcePorts).reduce((sum, [low, high]) => sum + high - low + 1, 0));
  let flows = 0n;
  eachProtocol(keys, (protocol, low, high) => {
    if (PORT_PROTOCOLS.includes(protocol)) flows += BigInt(high - low + 1) * ports;
    else flows += protocol === ICMP[family] ? BigInt(high - low + 1) : 1n;
  });
  return flows;
}

function complement(set: ValueSet, size: number): ValueSet {
  const missing: number[] = [];
  let from = 0;
  for (const [low, high] of rangesOf(set)) {
    if (from < low) missing.push(from, low);
    from = high + 1;
  }
  if (from < size) missing.push(from, size);
  return missing;
}

function textsOf(keys: ValueSet, names: Names): string[] {
  if (keys.length === 2 && keys[0] === 0 && keys[1] === KEYS) return ['any'];
  const texts: string[] = [];
  let whole: [number, number] | undefined;
  const endWhole = (): void => {
    if (whole !== undefined) texts.push(wholeText(...whole));
    whole = undefined;
  };
  eachProtocol(keys, (protocol, low, high) => {
    if (low === 0 && high === LOW16 - 1 && !names.has(protocol)) {
      if (whole?.[1] === protocol - 1) whole[1] = protocol;
      else {
        endWhole();
        whole = [protocol, protocol];
      }
      return;
    }
    endWhole();
    const name = names.get(protocol) ?? `proto ${protocol}`;
    texts.push(low === 0 && high === LOW16 - 1 ? name : `${name}/${partText(protocol, low, high)}`);
  });
  endWhole();
  return texts;
}

const wholeText = (first: number, last: number): string =>
  first === last ? `proto ${first}` : `proto ${first}-${last}`;

/** Returns ports, or ICMP types with codes, as text. */
function partText(protocol: number, low: number, high: number): string {
  if (!isIcmp(protocol)) return between(low, high);
  if ((low & 255) === 0 && (high & 255) === 255) return between(low >>> 8, high >>> 8);
  const text = (key: number): string => `${key >>> 8}.${key & 255}`;
  return low === high ? text(low) : `${text(low)}-${text(high)}`;
}

function eachProtocol(keys: ValueSet, visit: (protocol: number, low: number, high: number) => void): void {
  for (const [first, last] of rangesOf(keys)) {
    for (let protocol = first >>> 16; protocol <= last >>> 16; protocol++) {
      const base = protocol * LOW16;
      visit(protocol, Math.max(first, base) - base, Math.min(last, base + LOW16 - 1) - base);
    }
  }
}

function rangesOf(set: ValueSet): [number, number][] {
  const ranges: [number, number][] = [];
  for (let at = 0; at < set.length; at += 2) ranges.push([itemAt(set, at), itemAt(set, at + 1) - 1]);
  return ranges;
}

function between(low: number, high: number): string {
  return low === high ? `${low}` : `${low}-${high}`;
}
