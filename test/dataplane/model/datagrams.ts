import type { Address } from '#contracts/policy/policy-model.js';
import type { FamilyModel } from './family-models.js';
import type { DropReason, Headers } from './headers.js';

/**
 * Datagrams whose first fragment passed. A later fragment that overlaps no other fragment gets the ports of
 * the first fragment (D18).
 */
export class Datagrams<A extends Address> {
  readonly #open = new Map<string, Datagram<A>>();

  constructor(private readonly family: FamilyModel<A>) {}

  clear(): void {
    this.#open.clear();
  }

  opened(first: Headers<A>, seen: string): void {
    const datagram: Datagram<A> = { first, covered: new Set(), end: 0, furthest: 0 };
    place(datagram, first);
    this.#open.set(this.#keyOf(first, seen), datagram);
  }

  refused(first: Headers<A>, seen: string): void {
    this.#open.delete(this.#keyOf(first, seen));
  }

  /**
   * Copies the protocol and the ports or ICMP fields of the first fragment into `later`, or returns the drop
   * reason.
   */
  continued(later: Headers<A>, seen: string): DropReason | undefined {
    const key = this.#keyOf(later, seen);
    const datagram = this.#open.get(key);
    if (datagram === undefined) return 'fragment';
    const fits = place(datagram, later);
    if (!fits || datagram.covered.size === datagram.end) this.#open.delete(key);
    if (!fits) return 'fragment_overlap';
    const { first } = datagram;
    later.protocol = first.protocol;
    if (first.protocol === this.family.icmp.protocol) {
      later.icmpType = first.icmpType;
      later.icmpCode = first.icmpCode;
      later.icmpId = first.icmpId;
    } else {
      later.sourcePort = first.sourcePort;
      later.destinationPort = first.destinationPort;
    }
    return undefined;
  }

  #keyOf({ source, destination, id, protocol }: Headers<A>, seen: string): string {
    return `${seen} ${source} ${destination} ${id} ${this.family.hasProtocolInFragments ? protocol : ''}`;
  }
}

type Datagram<A extends Address> = {
  readonly first: Headers<A>;
  readonly covered: Set<number>;
  /** Length of the datagram in units of 8 bytes; 0 until the last fragment arrives. */
  end: number;
  furthest: number;
};

function place(datagram: Datagram<Address>, part: Headers<Address>): boolean {
  const behind = part.unit + Math.ceil(part.fragmentBytes / 8);
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
