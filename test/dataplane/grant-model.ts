import type { Address, Grants, HostnamePattern, Policy } from '#contracts/policy/policy-model.js';
import type { Loaded } from './loaded.js';

/**
 * A model of the grants that a test adds to the grant table of the datapath under test. The model follows the
 * specification (D12).
 */
export class GrantModel implements Grants {
  readonly #expiries = new Map<string, Map<Address, bigint>>();

  constructor(private readonly kernel: Pick<Loaded, 'grants'>) {}

  has({ text }: HostnamePattern, address: Address): boolean {
    return (this.#expiries.get(text)?.get(address) ?? 0n) > process.hrtime.bigint();
  }

  /**
   * All grants, including the expired grants. A flow that a grant admitted stays allowed after the grant has
   * expired.
   */
  readonly ever: Grants = { has: ({ text }, address) => this.#expiries.get(text)?.has(address) ?? false };

  patternsOf(address: Address): readonly string[] {
    return [...this.#expiries].flatMap(([text, addresses]) => (addresses.has(address) ? [text] : []));
  }

  /** Removes the grants of all patterns that the activated policy does not have. */
  activated(policy: Policy): void {
    const kept = new Set(patternsOf(policy));
    for (const text of this.#expiries.keys()) if (!kept.has(text)) this.#expiries.delete(text);
  }

  grant(text: string, address: Address, expiresAtNs: bigint): void {
    const now = process.hrtime.bigint();
    const refused = this.kernel.grants.add([{ pattern: text, addresses: [address], expiresAtNs }], now);
    if (refused > 0) return;
    const addresses = this.#expiries.get(text) ?? new Map<Address, bigint>();
    const before = addresses.get(address) ?? 0n;
    addresses.set(address, before > expiresAtNs ? before : expiresAtNs);
    this.#expiries.set(text, addresses);
  }

  revokeAll(): void {
    for (const [text, addresses] of this.#expiries) {
      for (const address of addresses.keys()) this.revoke(text, address);
    }
  }

  revoke(text: string, address: Address): void {
    this.kernel.grants.remove([{ pattern: text, addresses: [address] }]);
    this.#expiries.get(text)?.delete(address);
  }
}

/** Returns the texts of all hostname patterns in the policy, each text once. */
export function patternsOf({ groups }: Policy): string[] {
  const texts = groups.flatMap(({ rules }) => rules.flatMap(({ hostname }) => (hostname ? [hostname.text] : [])));
  return [...new Set(texts)];
}
