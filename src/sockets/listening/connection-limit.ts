import type { Socket } from 'node:net';
import { ipv4MappedBy, limitedPart, parseAddress } from '#addresses/ip-address.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { descriptorOf, isReserved } from './descriptor-reserve.js';

/** Counts the open connections of each source. A source without open connections takes no memory. */
export class SourceCounts<Source extends Address | string> {
  readonly #open = new Map<Source, number>();

  of(source: Source): number {
    return this.#open.get(source) ?? 0;
  }

  add(source: Source): void {
    this.#open.set(source, this.of(source) + 1);
  }

  remove(source: Source): void {
    const left = this.of(source) - 1;
    if (left > 0) this.#open.set(source, left);
    else this.#open.delete(source);
  }
}

/**
 * Returns a function that returns true if the caller must close a new connection: its source already has
 * `perSource()` open connections, or its descriptor is reserved (`isReserved`). An accepted connection counts
 * for its source until the connection is closed. All addresses of an IPv6 /64 prefix are one source.
 */
export function connectionLimit(perSource: () => number, use: 'api' | 'connection'): (connection: Socket) => boolean {
  const open = new SourceCounts<Address | string>();
  return (connection) => {
    const source = sourceOf(connection.remoteAddress ?? '');
    if (open.of(source) >= perSource() || isReserved(descriptorOf(connection), use)) return true;
    open.add(source);
    connection.once('close', () => open.remove(source));
    return false;
  };
}

/** A listener at `::` of Node has the sources of IPv4 as IPv4-mapped addresses. */
function sourceOf(text: string): Address | string {
  const address = parseAddress(text);
  if (address === undefined) return text;
  return ipv4MappedBy({ address, length: 128 })?.address ?? limitedPart(address);
}
