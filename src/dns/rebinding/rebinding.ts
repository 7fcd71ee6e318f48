import { covers } from '#addresses/ip-address.js';
import type { Address, HostnamePattern, Prefix } from '#contracts/policy/policy-model.js';
import { ownAddresses, ownIpv6Networks } from '#dns/own-addresses.js';
import { labelsOf, type NameKey } from '#dns/wire/name.js';
import { matchesHostname } from '#policy/model/names/hostname.js';
import { reachedBy, type SpecialBlock, specialBlockOf } from './special-addresses.js';

/**
 * DNS zones that the public DNS does not contain (RFC 6762, RFC 8375, ICANN's `internal`). Names in these
 * zones may have private addresses.
 */
const PRIVATE_ZONES: readonly (readonly string[])[] = [['local'], ['internal'], ['home', 'arpa']];
const NEVER = '; allowed only without dns.rebind_protection';
const OWN_ADDRESSES_LAST_MS = 10_000;
/**
 * The block of addresses in the IPv6 networks of the node. Machines of a local network have global IPv6
 * addresses, where those of IPv4 have private ones.
 */
const OWN_NETWORK: SpecialBlock = { name: 'own_network', isAlwaysRemoved: false };

/** The addresses of the node, and its IPv6 networks. */
type Own = { readonly addresses: ReadonlySet<Address>; readonly networks: readonly Prefix<bigint>[] };
const readOwnOfHost = (): Own => ({ addresses: ownAddresses(), networks: ownIpv6Networks() });

/**
 * Selects the addresses that the proxy must remove from an answer (N3). If a public name had a private
 * address, a web page from the internet could connect to machines of the local network. The node's own
 * addresses and blocks with `isAlwaysRemoved` are removed from answers for every name.
 */
export class Rebinding {
  #own: Own = { addresses: new Set(), networks: [] };
  #readAt = Number.NEGATIVE_INFINITY;

  constructor(
    private isProtected: boolean,
    private allowed: readonly HostnamePattern[],
    private readonly readOwn: () => Own = readOwnOfHost,
  ) {}

  change(isProtected: boolean, allowed: readonly HostnamePattern[]): void {
    this.isProtected = isProtected;
    this.allowed = allowed;
  }

  /**
   * Returns a function that checks an address of an answer for `name`. The function returns the reason why
   * the address must be removed, as text for a finding. The function returns null if the address may stay.
   */
  reasonsFor(name: NameKey, nowMs: number): (address: Address) => string | null {
    if (!this.isProtected) return () => null;
    const own = this.#ownAt(nowMs);
    const reasonFor = (address: Address): string | null => {
      if (own.addresses.has(address)) return `own_address${NEVER}`;
      const block = specialBlockOf(address) ?? (isIn(own.networks, address) ? OWN_NETWORK : null);
      if (block === null) return null;
      if (block.isAlwaysRemoved) return `${block.name}${NEVER}`;
      return this.#isTrusted(name) ? null : `${block.name}; allowed only for names in dns.rebind_allow`;
    };
    return (address) => {
      for (const reached of reachedBy(address)) {
        const reason = reasonFor(reached);
        if (reason !== null) return reason;
      }
      return null;
    };
  }

  /**
   * Makes the next call of `reasonsFor` read the node's addresses again. Call this method when the node's
   * addresses may have changed.
   */
  forgetOwn(): void {
    this.#readAt = Number.NEGATIVE_INFINITY;
  }

  #isTrusted(name: NameKey): boolean {
    const labels = labelsOf(name);
    return (
      PRIVATE_ZONES.some((zone) => endsWith(labels, zone)) || this.allowed.some((to) => matchesHostname(to, labels))
    );
  }

  #ownAt(nowMs: number): Own {
    if (nowMs - this.#readAt > OWN_ADDRESSES_LAST_MS) {
      this.#own = this.readOwn();
      this.#readAt = nowMs;
    }
    return this.#own;
  }
}

function isIn(networks: readonly Prefix<bigint>[], address: Address): boolean {
  return typeof address === 'bigint' && networks.some((network) => covers(network, address));
}

function endsWith(labels: readonly string[], zone: readonly string[]): boolean {
  return zone.every((label, index) => label === labels[labels.length - zone.length + index]);
}
