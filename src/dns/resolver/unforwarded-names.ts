import type { UnforwardedReason } from '#contracts/policy/explain-facts.js';
import type { HostnamePattern } from '#contracts/policy/policy-model.js';
import { EXTENDED_ERROR, RCODE } from '#dns/wire/dns-numbers.js';
import { isWithin, keyOf, type NameKey, nameOf } from '#dns/wire/name.js';

const RESOLVER_ARPA = keyOf(nameOf(['resolver', 'arpa']));

/**
 * The response, without records, to a query that the proxy does not forward. `reason`: the counter in
 * `DnsStats.refused`.
 */
export type UnforwardedAnswer = {
  readonly reason: UnforwardedReason;
  readonly rcode: number;
  readonly extendedError?: { readonly code: number; readonly text: string };
};

const NO_DESIGNATED_RESOLVER: UnforwardedAnswer = { reason: 'resolver_arpa', rcode: RCODE.noerror };
const CANARY: UnforwardedAnswer = {
  reason: 'canary_name',
  rcode: RCODE.nxdomain,
  extendedError: { code: EXTENDED_ERROR.blocked, text: 'dns.canary_names contains this name' },
};

/**
 * The names that the proxy answers itself, without records.
 * - `resolver.arpa` and all names below it belong to each resolver itself. The answer of an upstream would
 *   lead clients past the proxy, to the encrypted resolver of the upstream (RFC 9462, 4 and 6.1).
 * - Canary names: software looks them up to learn whether the network filters.
 */
export class UnforwardedNames {
  #exact: ReadonlySet<NameKey> = new Set();
  /**
   * The names whose subdomains are canary names: software looks them up to learn whether the network filters.
   */
  #parents: ReadonlySet<NameKey> = new Set();

  constructor(canaries: readonly HostnamePattern[]) {
    this.change(canaries);
  }

  change(canaries: readonly HostnamePattern[]): void {
    const keys = (kind: 'exact' | 'suffix') =>
      new Set(canaries.flatMap((name) => (name.kind === kind ? [keyOf(nameOf(name.labels))] : [])));
    this.#exact = keys('exact');
    this.#parents = keys('suffix');
  }

  /** Returns the response to a query for `name`; null if the proxy must forward the query. */
  answerTo(name: NameKey): UnforwardedAnswer | null {
    if (isWithin(name, RESOLVER_ARPA)) return NO_DESIGNATED_RESOLVER;
    return this.#exact.has(name) || this.#isBelowParent(name) ? CANARY : null;
  }

  /**
   * Returns why the proxy answers a query for `name` itself; null if it forwards the query. `name` is valid
   * and in lower case, without a final dot. The root is an empty text.
   */
  reasonFor(name: string): UnforwardedReason | null {
    // All these names are ASCII. The wire form of another name can be too long.
    if (name === '' || /[^\0-\x7f]/.test(name)) return null;
    return this.answerTo(keyOf(nameOf(name.split('.'))))?.reason ?? null;
  }

  #isBelowParent(name: NameKey): boolean {
    if (this.#parents.size === 0) return false;
    for (let at = name.charCodeAt(0) + 1; at < name.length; at += name.charCodeAt(at) + 1)
      if (this.#parents.has(name.slice(at))) return true;
    return false;
  }
}
