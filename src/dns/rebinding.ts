import type { HostnamePattern } from '#contracts/policy-model.js';
import { matchesHostname } from '#policy/model/hostname.js';
import { ownAddresses } from './own-addresses.js';
import { specialBlockOf } from './special-addresses.js';
import { labelsOf, type NameKey } from './wire/name.js';

/** Zones that no public name can be in (RFC 6762, RFC 8375, ICANN's `internal`). */
const PRIVATE_ZONES: readonly (readonly string[])[] = [['local'], ['internal'], ['home', 'arpa']];
const NEVER = ': allowed only without dns.rebind_protection';
const OWN_ADDRESSES_LAST_MS = 10_000;

/**
 * Decides which addresses an answer may not contain (N3). A public name with a private address lets a web
 * page from the internet connect to machines of this network. The node's own addresses and the blocks that no
 * other machine can have are always removed.
 */
export class Rebinding {
  #own: ReadonlySet<number> = new Set();
  #readAt = Number.NEGATIVE_INFINITY;

  constructor(
    private readonly isProtected: boolean,
    private readonly allowed: readonly HostnamePattern[],
    private readonly readOwn: () => ReadonlySet<number> = ownAddresses,
  ) {}

  /**
   * Returns a function that returns why an address must be removed from answers for this name, as text for a
   * finding; null: it may stay.
   */
  reasonsFor(name: NameKey, nowMs: number): (address: number) => string | null {
    if (!this.isProtected) return () => null;
    const own = this.#ownAt(nowMs);
    return (address) => {
      if (own.has(address)) return `own_address${NEVER}`;
      const block = specialBlockOf(address);
      if (block === null) return null;
      if (block.isNeverRemote) return `${block.name}${NEVER}`;
      return this.#isTrusted(name) ? null : `${block.name}: allowed only for names in dns.rebind_allow`;
    };
  }

  /** Reads the node's addresses again at the next use: they may have changed. */
  forgetOwn(): void {
    this.#readAt = Number.NEGATIVE_INFINITY;
  }

  #isTrusted(name: NameKey): boolean {
    const labels = labelsOf(name);
    return (
      PRIVATE_ZONES.some((zone) => endsWith(labels, zone)) || this.allowed.some((to) => matchesHostname(to, labels))
    );
  }

  #ownAt(nowMs: number): ReadonlySet<number> {
    if (nowMs - this.#readAt > OWN_ADDRESSES_LAST_MS) {
      this.#own = this.readOwn();
      this.#readAt = nowMs;
    }
    return this.#own;
  }
}

function endsWith(labels: readonly string[], zone: readonly string[]): boolean {
  return zone.every((label, index) => label === labels[labels.length - zone.length + index]);
}
