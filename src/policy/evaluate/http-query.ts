import type { HttpRequestMatchConfig } from '#contracts/policy-document.js';
import type { Action } from '#contracts/policy-model.js';
import { exactTests, regexTests, type TextTest } from './http-values.js';

/** Compiled query matchers. A request matches if all its query matchers succeed (D24). */
export class QueryMatchers {
  readonly #present: readonly string[];
  readonly #tests: readonly (readonly [key: string, test: TextTest])[];

  constructor(config: NonNullable<HttpRequestMatchConfig['query']>) {
    this.#present = config.keys_present ?? [];
    this.#tests = [...exactTests(config.key_values_exact), ...regexTests(config.key_values_regex)];
  }

  /**
   * Whether the query matches for a rule with this action. If a query repeats a key, different servers read
   * different values. So all values must match for an allow rule, and one value must match for a deny rule.
   */
  match(query: string | null, action: Action): boolean {
    // Decode keys and values like HTML forms (WHATWG URL, 5.1). `URLSearchParams` would remove a leading `?`;
    // the `&` before the query prevents the removal.
    const pairs = new URLSearchParams(`&${query ?? ''}`);
    if (!this.#present.every((key) => pairs.has(key))) return false;
    return this.#tests.every(([key, test]) => {
      const values = pairs.getAll(key);
      if (action === 'deny') return values.some((value) => test(value, true));
      return values.length > 0 && values.every((value) => test(value, false));
    });
  }
}
