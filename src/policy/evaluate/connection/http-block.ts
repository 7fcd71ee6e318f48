import type { HttpMatchConfig, HttpRequestMatchConfig, NameMatchObject } from '#contracts/policy/policy-document.js';
import type { Action } from '#contracts/policy/policy-model.js';
import type { RequestFacts, ResponseFacts } from '#contracts/service-plane/http-facts.js';
import { hostnameListTest } from '#policy/model/names/hostname.js';
import { HeaderMatchers } from './http-headers.js';
import { PathMatcher, type PathView } from './http-path.js';
import { anyOf, exactTest, exactTests, regexTest, regexTests, type TextTest } from './http-values.js';

/** Compiled query matchers. A request matches if all its query matchers succeed (D24). */
class QueryMatchers {
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

/**
 * Whether the HTTP matchers of a rule match a request (D24). An undecidable matcher is "no" for an allow rule
 * and "yes" for a deny rule (D19a). A path matcher is undecidable for a path that different servers interpret
 * in different ways.
 */
export function matchRequest(
  config: HttpRequestMatchConfig | undefined,
  facts: RequestFacts,
  action: Action,
): 'yes' | 'no' {
  return config === undefined || failedTest(config, facts, action) === undefined ? 'yes' : 'no';
}

/** A matcher of a request: its name in `request`, and for a path the form (such as decoded) that decided. */
export type DecidingMatcher = { readonly matcher: string; readonly view: PathView | null };

/**
 * Returns the first matcher that a request does not match. If a request matches a deny rule, returns the path
 * matcher with the form that matched. Returns null in all other cases.
 */
export function decidingMatcher(
  config: HttpRequestMatchConfig | undefined,
  facts: RequestFacts,
  action: Action,
): DecidingMatcher | null {
  if (config === undefined) return null;
  const byPath = action === 'deny' ? testsOf(config).find(({ path }) => path !== null) : undefined;
  const decisive = failedTest(config, facts, action) ?? byPath;
  if (decisive === undefined) return null;
  return { matcher: decisive.matcher, view: decisive.path?.decidingView(facts.path, action === 'deny') ?? null };
}

function failedTest(config: HttpRequestMatchConfig, facts: RequestFacts, action: Action): RequestTest | undefined {
  for (const each of testsOf(config)) if (!each.test(facts, action)) return each;
  return undefined;
}

function testsOf(config: HttpRequestMatchConfig): readonly RequestTest[] {
  let tests = compiled.get(config);
  if (tests === undefined) {
    tests = compile(config);
    compiled.set(config, tests);
  }
  return tests;
}

/**
 * Returns a JSON pointer to the first matcher that a response violates, relative to the `http` member of the
 * rule. Returns null if the response violates no matcher.
 */
export function violatedMatcher(config: HttpMatchConfig['response'], facts: ResponseFacts): string | null {
  if (config?.headers === undefined) return null;
  let matchers = responses.get(config);
  if (matchers === undefined) {
    matchers = new HeaderMatchers(config.headers);
    responses.set(config, matchers);
  }
  const broken = matchers.broken(facts.headers);
  return broken === null ? null : `/response/headers${broken}`;
}

type RequestTest = {
  readonly matcher: string;
  readonly test: (facts: RequestFacts, action: Action) => boolean;
  readonly path: PathMatcher | null;
};

const compiled = new WeakMap<HttpRequestMatchConfig, readonly RequestTest[]>();
const responses = new WeakMap<NonNullable<HttpMatchConfig['response']>, HeaderMatchers>();

/**
 * Compiles the request matchers to tests. A request matches if all tests succeed. Tests that need little time
 * come first.
 */
function compile({ methods = [], host, path, query, headers }: HttpRequestMatchConfig): readonly RequestTest[] {
  const tests: RequestTest[] = [];
  if (methods.length > 0) {
    const test = exactTest(methods);
    tests.push({ matcher: 'methods', test: (facts) => test(facts.method, false), path: null });
  }
  if (host !== undefined) tests.push({ matcher: 'host', test: hostTest(host), path: null });
  if (path !== undefined) {
    const matcher = new PathMatcher(path);
    const test: RequestTest['test'] = (facts, action) => matcher.matches(facts.path, action === 'deny');
    tests.push({ matcher: 'path', test, path: matcher });
  }
  if (query !== undefined) {
    const matchers = new QueryMatchers(query);
    const test: RequestTest['test'] = (facts, action) => matchers.match(facts.query, action);
    tests.push({ matcher: 'query', test, path: null });
  }
  if (headers !== undefined) {
    const matchers = new HeaderMatchers(headers);
    const test: RequestTest['test'] = (facts, action) => matchers.match(facts.headers, action);
    tests.push({ matcher: 'headers', test, path: null });
  }
  return tests;
}

function hostTest({ exact = [], regex }: NameMatchObject): RequestTest['test'] {
  const test = anyOf([
    ...(exact.length > 0 ? [hostnameListTest(exact)] : []),
    ...(regex === undefined ? [] : [regexTest(regex, true)]),
  ]);
  return (facts, action) => test(facts.host, action === 'deny');
}
