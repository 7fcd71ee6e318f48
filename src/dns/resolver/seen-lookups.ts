import type { SeenLookups } from '#contracts/dns/seen-lookup.js';
import type { Address } from '#contracts/policy/policy-model.js';
import { verdictOf } from '#contracts/policy/verdict-word.js';
import { nowMs, wallMs } from '#dns/clock.js';
import { type NameKey, presentationOf } from '#dns/wire/name.js';
import type { RemovedAddress } from './answer-cache.js';

const DENIED = 1_024;
const REBINDINGS = 1_024;
const ALLOWED = 4_096;
const NAMED = 100_000;

type Sighting = {
  source: Address;
  key: NameKey;
  type: number;
  generation: number;
  word: number;
  count: number;
  lastMs: number;
};

type Rebinding = RemovedAddress & {
  readonly source: Address;
  readonly key: NameKey;
  readonly generation: number;
  count: number;
  lastMs: number;
};

/**
 * Collects lookups between two calls of `drain`, and merges equal lookups. The counter does not collect
 * lookups above a limit; it counts them in `lost` and `lostDenied`.
 */
export class SeenLookupCounter {
  /** Whether `add` collects allowed lookups besides denied lookups. */
  collectsAllowed = false;
  #denied = new Map<string, Sighting>();
  #allowed = new Map<string, Sighting>();
  #rebindings = new Map<string, Rebinding>();
  #named: { readonly address: Address; readonly key: NameKey }[] = [];
  #lost = 0;
  #lostDenied = 0;

  add(source: Address, key: NameKey, type: number, generation: number, word: number): void {
    const isDenied = verdictOf(word) !== 'allow';
    if (!isDenied && !this.collectsAllowed) return;
    const found = isDenied ? this.#denied : this.#allowed;
    const at = `${source} ${type} ${word} ${generation} ${key}`;
    const known = found.get(at);
    if (known !== undefined) {
      known.count++;
      known.lastMs = nowMs();
    } else if (found.size < (isDenied ? DENIED : ALLOWED)) {
      found.set(at, { source, key, type, generation, word, count: 1, lastMs: nowMs() });
    } else {
      this.#lost++;
      if (isDenied) this.#lostDenied++;
    }
  }

  /** Records that the DNS rebinding protection removed an address from an answer to the client `source`. */
  rebound(source: Address, key: NameKey, { address, reason }: RemovedAddress, generation: number): void {
    const at = `${source} ${address} ${generation} ${reason} ${key}`;
    const known = this.#rebindings.get(at);
    if (known !== undefined) {
      known.count++;
      known.lastMs = nowMs();
    } else if (this.#rebindings.size < REBINDINGS) {
      this.#rebindings.set(at, { source, key, address, reason, generation, count: 1, lastMs: nowMs() });
    } else this.#lostDenied++;
  }

  /** Records that an address was granted for a name that had no unexpired grant for this address before. */
  named(address: Address, key: NameKey): void {
    if (this.#named.length < NAMED) this.#named.push({ address, key });
  }

  /** Returns what was collected since the last call, and removes it from this object. */
  drain(): SeenLookups {
    const lookups = [...this.#denied.values(), ...this.#allowed.values()].map(({ key, lastMs, ...rest }) => ({
      ...rest,
      hostname: presentationOf(key),
      lastMs: wallMs(lastMs),
    }));
    const rebindings = [...this.#rebindings.values()].map(({ key, lastMs, ...rest }) => ({
      ...rest,
      hostname: presentationOf(key),
      lastMs: wallMs(lastMs),
    }));
    const named = this.#named.map(({ address, key }) => ({ address, hostname: presentationOf(key) }));
    const drained = { lookups, rebindings, named, lost: this.#lost, lostDenied: this.#lostDenied };
    this.#denied.clear();
    this.#allowed.clear();
    this.#rebindings.clear();
    this.#named = [];
    this.#lost = this.#lostDenied = 0;
    return drained;
  }
}
