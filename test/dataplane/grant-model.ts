import type { Grants, HostnamePattern, Policy } from '#contracts/policy-model.js';
import type { Loaded } from './loaded.js';

/** A model of all grants that were given to the kernel under test, by the specification (D12). */
export class GrantModel implements Grants {
  readonly #expiries = new Map<string, Map<number, bigint>>();

  constructor(private readonly kernel: Loaded) {}

  has({ text }: HostnamePattern, address: number): boolean {
    return (this.#expiries.get(text)?.get(address) ?? 0n) > process.hrtime.bigint();
  }

  /** All grants, with the expired ones: they count as long as the flows that they admitted. */
  readonly ever: Grants = { has: ({ text }, address) => this.#expiries.get(text)?.has(address) ?? false };

  patternsOf(address: number): readonly string[] {
    return [...this.#expiries].flatMap(([text, addresses]) => (addresses.has(address) ? [text] : []));
  }

  /** A grant is removed with its pattern. */
  activated(policy: Policy): void {
    const kept = new Set(patternsOf(policy));
    for (const text of this.#expiries.keys()) if (!kept.has(text)) this.#expiries.delete(text);
  }

  grant(text: string, address: number, expiresAtNs: bigint): void {
    const now = process.hrtime.bigint();
    const refused = this.kernel.grants.add([{ pattern: text, addresses: [address], expiresAtNs }], now);
    if (refused > 0) return;
    const addresses = this.#expiries.get(text) ?? new Map<number, bigint>();
    const before = addresses.get(address) ?? 0n;
    addresses.set(address, before > expiresAtNs ? before : expiresAtNs);
    this.#expiries.set(text, addresses);
  }

  revokeAll(): void {
    for (const [text, addresses] of this.#expiries) {
      for (const address of addresses.keys()) this.revoke(text, address);
    }
  }

  revoke(text: string, address: number): void {
    this.kernel.grants.remove([{ pattern: text, addresses: [address] }]);
    this.#expiries.get(text)?.delete(address);
  }
}

/** The texts of a policy's hostname patterns. */
export function patternsOf({ groups }: Policy): string[] {
  const texts = groups.flatMap(({ rules }) => rules.flatMap(({ hostname }) => (hostname ? [hostname.text] : [])));
  return [...new Set(texts)];
}
