import { setImmediate as nextTurn } from 'node:timers/promises';
import { mask } from '#addresses/ip-address.js';
import type { FlowPage, LiveFlow } from '#contracts/datapath/datapath.js';
import type { DestinationTranslation, End } from '#contracts/datapath/translation.js';
import { type Packet, PORT_PROTOCOLS, type Prefix } from '#contracts/policy/policy-model.js';
import { FLOW_KEY_OFFSETS, FLOW_LAYOUTS, icmpQueryOf } from '#dataplane/abi/flow.js';
import { Conntrack, type Tuple } from './conntrack.js';

/** Number of flows that are looked up between two turns of the event loop; this takes about 7 ms. */
const PART = 100;

export async function withTranslations(page: FlowPage): Promise<FlowPage> {
  const items: LiveFlow[] = [];
  const conntrack = new Conntrack();
  try {
    for (const flow of page.items) {
      const tuple = tupleOf(flow);
      items.push(tuple === null ? flow : { ...flow, translation: conntrack.translationOf(tuple) });
      if (items.length % PART === 0) await nextTurn();
    }
  } finally {
    conntrack.close();
  }
  return { ...page, items };
}

/** Returns how the node translates the destination of a packet. `translated`: ranges of service addresses. */
export function destinationTranslationOf(
  packet: Packet<number>,
  translated: readonly Prefix<number>[] = [],
): DestinationTranslation {
  const { source, destination, sourcePort, destinationPort, protocol } = packet;
  const isService = translated.some(({ address, length }) => mask(destination, length) === address >>> 0);
  const isKnown = PORT_PROTOCOLS.includes(protocol) && sourcePort !== 0;
  const wire = {
    protocol,
    source: { address: source >>> 0, port: sourcePort },
    destination: { address: destination >>> 0, port: destinationPort },
    icmpType: 0,
  };
  if (!isKnown) return { isService, real: null };
  const conntrack = new Conntrack();
  try {
    return { isService, real: conntrack.destinationOf(wire) };
  } finally {
    conntrack.close();
  }
}

/** Returns null for a flow of IPv6, which the node does not translate. */
function tupleOf({ key, source, destination, protocol, ports, icmpId }: LiveFlow): Tuple | null {
  if (typeof source === 'bigint' || typeof destination === 'bigint') return null;
  const end = (address: number, side: 0 | 1): End => ({ address, port: ports?.[side] ?? icmpId ?? 0 });
  const icmpType = icmpQueryOf(key[FLOW_KEY_OFFSETS.kind] ?? 0, FLOW_LAYOUTS.ipv4);
  return { protocol, source: end(source, 0), destination: end(destination, 1), icmpType };
}
