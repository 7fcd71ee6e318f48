import type { RequestFacts, ResponseFacts } from '#contracts/http-facts.js';
import type { HttpMatchConfig, HttpRequestMatchConfig, NameMatchObject } from '#contracts/policy-document.js';
import type { Action } from '#contracts/policy-model.js';
import { hostnameListTest } from '#policy/model/hostname.js';
import { HeaderMatchers } from './http-headers.js';
import { isAmbiguousPath, normalPath, writtenPath } from './http-path.js';
import { QueryMatchers } from './http-query.js';
import { exactTest, regexTest, type TextTest } from './http-values.js';

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
  if (config === undefined) return 'yes';
  let tests = compiled.get(config);
  if (tests === undefined) {
    tests = compile(config);
    compiled.set(config, tests);
  }
  for (const test of tests) if (!test(facts, action)) return 'no';
  return 'yes';
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

type RequestTest = (facts: RequestFacts, action: Action) => boolean;

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
    tests.push((facts) => test(facts.method, false));
  }
  if (host !== undefined) tests.push(hostTest(host));
  if (path !== undefined) tests.push(pathTest(path));
  if (query !== undefined) {
    const matchers = new QueryMatchers(query);
    tests.push((facts, action) => matchers.match(facts.query, action));
  }
  if (headers !== undefined) {
    const matchers = new HeaderMatchers(headers);
    tests.push((facts, action) => matchers.match(facts.headers, action));
  }
  return tests;
}

function hostTest({ exact = [], regex }: NameMatchObject): RequestTest {
  const test = anyOf([
    ...(exact.length > 0 ? [hostnameListTest(exact)] : []),
    ...(regex === undefined ? [] : [regexTest(regex, true)]),
  ]);
  return (facts, action) => test(facts.host, action === 'deny');
}

/**
 * Compiles a path matcher to a test of two paths: the path as sent, and the normalised path. A deny rule
 * matches if either path matches. An allow rule matches only if both paths match.
 */
function pathTest({ exact = [], prefix = [], regex }: NonNullable<HttpRequestMatchConfig['path']>): RequestTest {
  const searched = regex === undefined ? [] : [regexTest(regex)];
  const test = (view: (pattern: string) => string) =>
    anyOf([
      ...(exact.length > 0 ? [exactTest(exact.map(view))] : []),
      ...prefix.map(view).map(
        (start): TextTest =>
          (text) =>
            text.startsWith(start),
      ),
      ...searched,
    ]);
  const sent = test(writtenPath);
  const understood = test((pattern) => normalPath(writtenPath(pattern)));
  return ({ path }, action) => {
    const isDeny = action === 'deny';
    if (isAmbiguousPath(path)) return isDeny;
    const matchesSent = sent(path, isDeny);
    return matchesSent === isDeny ? matchesSent : understood(normalPath(path), isDeny);
  };
}

function anyOf(tests: readonly TextTest[]): TextTest {
  const [first] = tests;
  if (tests.length === 1 && first !== undefined) return first;
  return (text, unresolved) => tests.some((test) => test(text, unresolved));
}
