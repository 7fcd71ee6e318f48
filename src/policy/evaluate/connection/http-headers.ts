import type { HeaderMatchConfig } from '#contracts/policy/policy-document.js';
import type { Action } from '#contracts/policy/policy-model.js';
import type { Headers } from '#contracts/service-plane/http-facts.js';
import { escapeStep } from '#policy/model/pointer.js';
import { exactTests, regexTests, type TextTest } from './http-values.js';

type Matcher = {
  readonly kind: keyof HeaderMatchConfig;
  readonly name: string;
  /** The test of the header values; null for a matcher that tests only whether the header is present. */
  readonly test: TextTest | null;
};

/** Compiled header matchers. A request or response matches if all its header matchers succeed (D24). */
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

  /**
   * Whether the headers match for a rule with this action. If a header is undecidable, the headers match a
   * deny rule and do not match an allow rule.
   */
  match(headers: Headers, action: Action): boolean {
    if (this.#hasAlias(headers)) return action === 'deny';
    return this.#matchers.every((matcher) => holds(matcher, headers, action));
  }

  /**
   * Returns a JSON pointer to the first header matcher that fails, relative to the `headers` member of the
   * rule. Returns null if all header matchers succeed.
   */
  broken(headers: Headers): string | null {
    const broken = this.#matchers.find((matcher) => !holds(matcher, headers, 'allow'));
    return broken === undefined ? null : `/${broken.kind}/${escapeStep(broken.name)}`;
  }

  /**
   * Whether the name of a header differs from a configured name only in `_` and `-`. Some servers treat such
   * names as the same header (RFC 3875, 4.1.18), so the matchers are undecidable.
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
 * Returns all values that a server may read from a repeated header (RFC 9110, 5.3): each header line, each
 * comma-separated member of a line, and all lines joined by commas.
 */
function readings(values: readonly string[]): readonly string[] {
  const members = values.flatMap((value) => (value.includes(',') ? value.split(',').map((part) => part.trim()) : []));
  return values.length > 1 ? [...values, ...members, values.join(', ')] : [...values, ...members];
}

function dashed(name: string): string {
  return name.replaceAll('_', '-');
}
