import type { AddressSpace, Span } from '#analysis/engine/address-space.js';
import type { Region } from '#analysis/engine/comparison.js';
import type { Atom } from '#analysis/engine/conditions.js';
import type { Flow } from '#analysis/engine/decider.js';
import type { ValueSet } from '#analysis/engine/pieces.js';
import { itemAt } from '#arrays/read.js';
import type { FlowExample } from '#contracts/analysis/flow-region.js';
import { type Family, ICMP, IPPROTO, PORT_PROTOCOLS } from '#contracts/policy/policy-model.js';
import { portMapKey } from '#contracts/policy/program.js';

const USUAL_PORTS = [...[443, 80, 22].map((port) => portMapKey(IPPROTO.tcp, port)), portMapKey(IPPROTO.udp, 53)];
/** The services that an example has if the region has them, the first of them first; then an echo request. */
const USUAL: Readonly<Record<Family, readonly number[]>> = {
  ipv4: [...USUAL_PORTS, portMapKey(ICMP.ipv4, 8 * 256)],
  ipv6: [...USUAL_PORTS, portMapKey(ICMP.ipv6, 128 * 256)],
};
const USUAL_SOURCE_PORT = 40_000;

/** Returns one flow of a region. It has usual ports and host addresses if the region has them. */
export function exampleOf(region: Region): Flow {
  const { space } = region;
  const key = firstOf(region.keys, USUAL[space.family]);
  const hasPorts = PORT_PROTOCOLS.includes(key >>> 16);
  return {
    source: hostOf(region.sources, space),
    destination: hostOf(region.destinations, space),
    key,
    sourcePort: hasPorts ? firstOf(region.sourcePorts, [USUAL_SOURCE_PORT]) : 0,
  };
}

/** Returns a flow with the field names of an explain request. `atoms`: the facts that hold for the flow. */
export function explainRequest(
  { source, destination, key, sourcePort }: Flow,
  atoms: readonly Atom[],
  space: AddressSpace,
): FlowExample {
  const proto = key >>> 16;
  const low16 = key & 0xffff;
  const name = atoms
    .flatMap((atom) => (atom.kind === 'name' ? [nameFor(atom.pattern)] : []))
    .find((one) => one !== null);
  return {
    src: space.format(source),
    dst: space.format(destination),
    proto,
    ...(PORT_PROTOCOLS.includes(proto) ? { src_port: sourcePort, dst_port: low16 } : {}),
    ...(proto === ICMP[space.family] ? { icmp_type: low16 >>> 8, icmp_code: low16 & 255 } : {}),
    ...(name == null ? {} : { hostname: name }),
  };
}

/** Returns a name that a hostname pattern matches; null for a regular expression. */
function nameFor(pattern: Extract<Atom, { kind: 'name' }>['pattern']): string | null {
  switch (pattern.kind) {
    case 'exact':
      return pattern.text;
    case 'suffix':
      return `example.${pattern.labels.join('.')}`;
    case 'any':
      return 'host.example';
    case 'regex':
      return null;
  }
}

/** The number of addresses from which on an example is an address that documents use. */
const MANY = 2n ** 24n;

/**
 * Returns an address of a large set that documents use, if it has one. Otherwise returns the second address
 * of the first span with two addresses or more, because the first may name a network.
 */
function hostOf(spans: readonly Span[], space: AddressSpace): Flow['source'] {
  const within = spans.filter((span) => space.sizeOf(span) >= MANY);
  const usual = space.examples.find((point) => within.some(({ start, end }) => start <= point && point < end));
  if (usual !== undefined) return usual;
  const first = itemAt(spans, 0);
  const wide = spans.find((span) => space.sizeOf(span) > 2n);
  return wide === undefined ? first.start : space.plus(wide.start, 1);
}

function firstOf(set: ValueSet, wanted: readonly number[]): number {
  for (const value of wanted)
    for (let at = 0; at < set.length; at += 2)
      if (itemAt(set, at) <= value && value < itemAt(set, at + 1)) return value;
  return itemAt(set, 0);
}
