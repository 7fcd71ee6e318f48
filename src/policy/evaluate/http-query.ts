import type { HttpRequestMatchConfig } from '#contracts/policy-document.js';
import type { Action } from '#contracts/policy-model.js';
import { exactTests, regexTests, type TextTest } from './http-values.js';

/** A compiled query matcher. All of its kinds must hold (D24). */
export class QueryMatchers {
  readonly #present: readonly string[];
  readonly #tests: readonly (readonly [key: string, test: TextTest])[];

  constructor(config: NonNullable<HttpRequestMatchConfig['query']>) {
    this.#present = config.keys_present ?? [];
    this.#tests = [...exactTests(config.key_values_exact), ...regexTests(config.key_values_regex)];
  }

  /**
   * Whether a rule with this action matches. If a key is repeated, servers use different values: an allow
   * needs all values to match, a deny needs one.
   */
  match(query: string | null, action: Action): boolean {
    // Keys and values are decoded as in forms (WHATWG URL, 5.1). The `&` preserves a leading `?`, which would
    // be dropped.
    const pairs = new URLSearchParams(`&${query ?? ''}`);
    if (!this.#present.every((key) => pairs.has(key))) return false;
    return this.#tests.every(([key, test]) => {
      const values = pairs.getAll(key);
      if (action === 'deny') return values.some((value) => test(value, true));
      return values.length > 0 && values.every((value) => test(value, false));
    });
  }
}
