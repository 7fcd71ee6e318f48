import { IPPROTO } from '#contracts/policy/policy-model.js';
import type { DropReason, Headers } from './headers.js';

/**
 * Datagrams whose first fragment passed. A later fragment that overlaps no other fragment gets the ports of
 * the first fragment (D18).
 */
export class Datagrams {
  readonly #open = new Map<string, Datagram>();

  clear(): void {
    this.#open.clear();
  }

  opened(first: Headers, seen: string): void {
    const datagram: Datagram = { first, covered: new Set(), end: 0, furthest: 0 };
    place(datagram, first);
    this.#open.set(keyOf(first, seen), datagram);
  }

  refused(first: Headers, seen: string): void {
    this.#open.delete(keyOf(first, seen));
  }

  /** Copies the ports or ICMP fields of the first fragment into `later`, or returns the drop reason. */
  continued(later: Headers, seen: string): DropReason | undefined {
    const key = keyOf(later, seen);
    const datagram = this.#open.get(key);
    if (datagram === undefined) return 'fragment';
    const fits = place(datagram, later);
    if (!fits || datagram.covered.size === datagram.end) this.#open.delete(key);
    if (!fits) return 'fragment_overlap';
    const { first } = datagram;
    if (later.protocol === IPPROTO.icmp) {
      later.icmpType = first.icmpType;
      later.icmpCode = first.icmpCode;
      later.icmpId = first.icmpId;
    } else {
      later.sourcePort = first.sourcePort;
      later.destinationPort = first.destinationPort;
    }
    return undefined;
  }
}

type Datagram = {
  readonly first: Headers;
  readonly covered: Set<number>;
  /** Length of the datagram in units of 8 bytes; 0 until the last fragment arrives. */
  end: number;
  furthest: number;
};

function place(datagram: Datagram, part: Headers): boolean {
  const behind = part.unit + Math.ceil(part.contentBytes / 8);
  for (let unit = part.unit; unit < behind; unit++) {
    if (datagram.covered.has(unit)) return false;
  }
  for (let unit = part.unit; unit < behind; unit++) datagram.covered.add(unit);
  datagram.furthest = Math.max(datagram.furthest, behind);
  if (!part.more) {
    if (datagram.end !== 0) return false;
    datagram.end = behind;
  }
  return datagram.end === 0 || datagram.furthest <= datagram.end;
}

function keyOf({ source, destination, id, protocol }: Headers, seen: string): string {
  return `${seen} ${source} ${destination} ${id} ${protocol}`;
}
