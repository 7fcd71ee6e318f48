import type { HttpRequestMatchConfig } from '#contracts/policy-document.js';
import type { Action } from '#contracts/policy-model.js';
import { exactTests, regexTests, type TextTest } from './http-values.js';

/** A query matcher, ready to be asked often. All of its kinds must hold (D24). */
export class QueryMatchers {
  readonly #present: readonly string[];
  readonly #tests: readonly (readonly [key: string, test: TextTest])[];

  constructor(config: NonNullable<HttpRequestMatchConfig['query']>) {
    this.#present = config.keys_present ?? [];
    this.#tests = [...exactTests(config.key_values_exact), ...regexTests(config.key_values_regex)];
  }

  /** Whether a rule of this action matches. Servers differ on which value of a repeated key counts: an allow needs all, a deny one. */
  match(query: string | null, action: Action): boolean {
    // Keys and values decoded as forms are (WHATWG URL, 5.1). The `&` keeps a `?` at the start, which would be dropped.
    const pairs = new URLSearchParams(`&${query ?? ''}`);
    if (!this.#present.every((key) => pairs.has(key))) return false;
    return this.#tests.every(([key, test]) => {
      const values = pairs.getAll(key);
      if (action === 'deny') return values.some((value) => test(value, true));
      return values.length > 0 && values.every((value) => test(value, false));
    });
  }
}
