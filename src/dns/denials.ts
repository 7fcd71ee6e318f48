import { nowMs, wallMs } from './clock.js';
import type { DeniedLookup } from './dns-proxy.js';
import { type NameKey, presentationOf } from './wire/name.js';

const CAPACITY = 1_024;

type Denial = {
  source: number;
  key: NameKey;
  type: number;
  generation: number;
  word: number;
  count: number;
  lastMs: number;
};

/** Denied lookups until they are taken: equal ones are one. What there is no room for is counted. */
export class Denials {
  #found = new Map<string, Denial>();
  lost = 0;

  add(source: number, key: NameKey, type: number, generation: number, word: number): void {
    const at = `${source} ${type} ${word} ${generation} ${key}`;
    const known = this.#found.get(at);
    if (known !== undefined) {
      known.count++;
      known.lastMs = nowMs();
    } else if (this.#found.size < CAPACITY) {
      this.#found.set(at, { source, key, type, generation, word, count: 1, lastMs: nowMs() });
    } else this.lost++;
  }

  take(): readonly DeniedLookup[] {
    if (this.#found.size === 0) return [];
    const taken = [...this.#found.values()];
    this.#found = new Map();
    return taken.map(({ key, lastMs, ...rest }) => ({
      ...rest,
      hostname: presentationOf(key),
      lastMs: wallMs(lastMs),
    }));
  }
}
