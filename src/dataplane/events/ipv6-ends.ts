import { SocketAddress } from 'node:net';
import { EVENT_FLAG, EVENT_OFFSETS } from './event.js';

export type Ipv6Ends = { readonly source: string; readonly destination: string };

/**
 * Returns the addresses of the dropped IPv6 packet of the event that begins at byte `at`; null if the event
 * is about IPv4.
 */
export function ipv6Ends(view: DataView, at: number): Ipv6Ends | null {
  if ((view.getUint8(at + EVENT_OFFSETS.flags) & EVENT_FLAG.ipv6) === 0) return null;
  return {
    source: addressText(view, at + EVENT_OFFSETS.packets),
    destination: addressText(view, at + EVENT_OFFSETS.bytes),
  };
}

function addressText(view: DataView, at: number): string {
  const groups = Array.from({ length: 8 }, (_, index) => view.getUint16(at + 2 * index).toString(16));
  return new SocketAddress({ family: 'ipv6', address: groups.join(':') }).address;
}
