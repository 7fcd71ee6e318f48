import type { Headers } from '#contracts/http-facts.js';
import type { HeaderMatchConfig } from '#contracts/policy-document.js';
import type { Action } from '#contracts/policy-model.js';
import { escapeStep } from '#policy/model/pointer.js';
import { exactTests, regexTests, type TextTest } from './http-values.js';

type Matcher = {
  readonly kind: keyof HeaderMatchConfig;
  readonly name: string;
  /** Null for a matcher that tests only presence. */
  readonly test: TextTest | null;
};

/** A compiled header matcher. All of its kinds must hold (D24). */
export class HeaderMatchers {
  readonly #matchers: readonly Matcher[];
  readonly #names: ReadonlySet<string>;
  readonly #dashed: ReadonlySet<string>;

  constructor(config: HeaderMatchConfig) {
    this.#matchers = [
      ...(config.require_present ?? []).map((name) => ({ kind: 'require_present' as const, name, test: null })),
      ...(config.deny_present ?? []).map((name) => ({ kind: 'deny_present' as const, name, test: null })),
      ...exactTests(config.exact).map(([name, test]) => ({ kind: 'exact' as const, name, test })),
      ...regexTests(config.regex).map(([name, test]) => ({ kind: 'regex' as const, name, test })),
    ];
    this.#names = new Set(this.#matchers.map(({ name }) => name));
    this.#dashed = new Set([...this.#names].map(dashed));
  }

  /** Whether a rule with this action matches. */
  match(headers: Headers, action: Action): boolean {
    if (this.#hasAlias(headers)) return action === 'deny';
    return this.#matchers.every((matcher) => holds(matcher, headers, action));
  }

  /** JSON pointer, within the matcher, of the first part that does not hold; null if all hold. */
  broken(headers: Headers): string | null {
    const broken = this.#matchers.find((matcher) => !holds(matcher, headers, 'allow'));
    return broken === undefined ? null : `/${broken.kind}/${escapeStep(broken.name)}`;
  }

  /**
   * Gateways (RFC 3875, 4.1.18) treat `x_role` and `x-role` as the same header. If a header differs from a
   * named one only in that, both are undecidable.
   */
  #hasAlias(headers: Headers): boolean {
    for (let index = 0; index < headers.length; index++) {
      const [name] = headers[index] as Headers[number];
      if (this.#names.has(name)) continue;
      if (this.#dashed.has(name.includes('_') ? dashed(name) : name)) return true;
    }
    return false;
  }
}

function holds({ kind, name, test }: Matcher, headers: Headers, action: Action): boolean {
  if (test === null) return isPresent(headers, name) === (kind === 'require_present');
  const values = headers.filter((header) => header[0] === name).map((header) => header[1]);
  if (action === 'deny') return readings(values).some((value) => test(value, true));
  return values.length > 0 && values.every((value) => test(value, false));
}

function isPresent(headers: Headers, name: string): boolean {
  return headers.some((header) => header[0] === name);
}

/**
 * The values that a server may read: each line, each member of a list, and all lines as one list (RFC 9110,
 * 5.3).
 */
function readings(values: readonly string[]): readonly string[] {
  const members = values.flatMap((value) => (value.includes(',') ? value.split(',').map((part) => part.trim()) : []));
  return values.length > 1 ? [...values, ...members, values.join(', ')] : [...values, ...members];
}

function dashed(name: string): string {
  return name.replaceAll('_', '-');
}
