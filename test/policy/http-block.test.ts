import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { HeaderMatchConfig, HttpRequestMatchConfig } from '#contracts/policy/policy-document.js';
import type { Headers, RequestFacts } from '#contracts/service-plane/http-facts.js';
import { decidingMatcher, matchRequest, violatedMatcher } from '#policy/evaluate/connection/http-block.js';
import { decodedPaths, normalPath } from '#policy/evaluate/connection/http-path.js';
import { PATHS, pathsOfContract } from './http-paths.js';
import { plainPath, referenceMatch } from './http-reference.js';

const facts: RequestFacts = { method: 'GET', host: 'a.test', path: '/', query: null, headers: [] };

type Decisions = readonly [allow: 'yes' | 'no', deny: 'yes' | 'no'];

function decisionsFor(config: HttpRequestMatchConfig | undefined, differs: Partial<RequestFacts>): Decisions {
  const request = { ...facts, ...differs };
  const answers: Decisions = [matchRequest(config, request, 'allow'), matchRequest(config, request, 'deny')];
  expect(answers).toEqual([referenceMatch(config, request, 'allow'), referenceMatch(config, request, 'deny')]);
  return answers;
}

const decisions = (allow: boolean, deny: boolean): Decisions => [allow ? 'yes' : 'no', deny ? 'yes' : 'no'];

type Query = NonNullable<HttpRequestMatchConfig['query']>;
const values = (exact: Record<string, string[]>): Query => ({ key_values_exact: exact });
const expression = (regex: Record<string, string>): Query => ({ key_values_regex: regex });

const queries: readonly (readonly [config: Query, query: string | null, allow: boolean, deny: boolean])[] = [
  [{ keys_present: ['a'] }, null, false, false],
  [{ keys_present: ['a'] }, '', false, false],
  [{ keys_present: ['a'] }, 'a', true, true],
  [{ keys_present: ['a'] }, 'a=', true, true],
  [{ keys_present: ['a'] }, '=a', false, false],
  [{ keys_present: ['a'] }, 'b=a', false, false],
  [{ keys_present: ['a'] }, 'A=1', false, false],
  [{ keys_present: ['a'] }, '%61=1', true, true],
  [{ keys_present: ['a'] }, '?a=1', false, false],
  [{ keys_present: ['?a'] }, '?a=1', true, true],
  [{ keys_present: ['a'] }, 'x;a=1', false, false],
  [{ keys_present: ['a'] }, '&&a&&', true, true],
  [{ keys_present: ['a b'] }, 'a+b=1', true, true],
  [{ keys_present: ['a b'] }, 'a%20b=1', true, true],
  [{ keys_present: ['a+b'] }, 'a+b=1', false, false],
  [{ keys_present: ['a+b'] }, 'a%2bb=1', true, true],
  [{ keys_present: ['a[]'] }, 'a[]=1', true, true],
  [{ keys_present: ['a[]'] }, 'a%5B%5D=1', true, true],
  [{ keys_present: ['a'] }, 'a[]=1', false, false],
  [{ keys_present: ['\u00e4'] }, '%C3%A4', true, true],
  [{ keys_present: ['\ufffd'] }, '%ff', true, true],
  [{ keys_present: ['%zz'] }, '%zz=1', true, true],
  [{ keys_present: ['a', 'b'] }, 'a', false, false],
  [{ keys_present: ['a', 'b'] }, 'b&a', true, true],
  [{ keys_present: ['__proto__'] }, '', false, false],
  [{ keys_present: ['toString'] }, 'a', false, false],
  [values({ a: ['1'] }), 'a=1', true, true],
  [values({ a: ['1'] }), 'a=2', false, false],
  [values({ a: ['1'] }), 'a', false, false],
  [values({ a: [''] }), 'a', true, true],
  [values({ a: ['1'] }), null, false, false],
  [values({ a: ['1', '2'] }), 'a=2', true, true],
  [values({ a: ['1', '2'] }), 'a=2&a=1', true, true],
  [values({ a: ['1'] }), 'a=1&a=2', false, true],
  [values({ a: ['1'] }), 'a=2&a=1', false, true],
  [values({ a: ['1'] }), 'a=1&%61=2', false, true],
  [values({ a: ['1'] }), 'a=%31', true, true],
  [values({ a: ['b=c'] }), 'a=b=c', true, true],
  [values({ a: ['b;c'] }), 'a=b;c', true, true],
  [values({ a: ['x y'] }), 'a=x+y', true, true],
  [values({ a: ['x y'] }), 'a=x%20y', true, true],
  [values({ a: ['x+y'] }), 'a=x%2By', true, true],
  [values({ a: ['1'], b: ['2'] }), 'a=1&b=2', true, true],
  [values({ a: ['1'], b: ['2'] }), 'a=1', false, false],
  [expression({ a: '^[0-9]+$' }), 'a=12', true, true],
  [expression({ a: '^[0-9]+$' }), 'a=1x', false, false],
  [expression({ a: '^[0-9]+$' }), 'a=12&a=x', false, true],
  [expression({ a: 'x' }), 'b=x', false, false],
  [{ keys_present: ['b'], ...values({ a: ['1'] }), ...expression({ c: 'z' }) }, 'a=1&b&c=z', true, true],
  [{ keys_present: ['b'], ...values({ a: ['1'] }), ...expression({ c: 'z' }) }, 'a=1&c=z', false, false],
];

const present = (...names: string[]): HeaderMatchConfig => ({ require_present: names });
const absent = (...names: string[]): HeaderMatchConfig => ({ deny_present: names });
const line = (name: string, value = ''): Headers[number] => [name, value];

const headers: readonly (readonly [config: HeaderMatchConfig, headers: Headers, allow: boolean, deny: boolean])[] = [
  [present('x-a'), [], false, false],
  [present('x-a'), [line('x-a')], true, true],
  [present('x-a'), [line('x-b')], false, false],
  [present('x-a', 'x-b'), [line('x-b')], false, false],
  [present('x-a', 'x-b'), [line('x-b'), line('x-a')], true, true],
  [absent('x-a'), [], true, true],
  [absent('x-a'), [line('x-a')], false, false],
  [absent('x-a'), [line('x-b')], true, true],
  [absent('x-a', 'x-b'), [line('x-b')], false, false],
  [absent('upgrade'), [line('upgrade', 'websocket')], false, false],
  [{ exact: { 'x-a': ['1'] } }, [line('x-a', '1')], true, true],
  [{ exact: { 'x-a': ['1'] } }, [line('x-a', '2')], false, false],
  [{ exact: { 'x-a': ['1'] } }, [], false, false],
  [{ exact: { 'x-a': [''] } }, [line('x-a')], true, true],
  [{ exact: { 'x-a': ['a'] } }, [line('x-a', 'A')], false, false],
  [{ exact: { 'x-a': ['1', '2'] } }, [line('x-a', '1'), line('x-a', '2')], true, true],
  [{ exact: { 'x-a': ['1'] } }, [line('x-a', '1'), line('x-a', '2')], false, true],
  [{ exact: { 'x-a': ['1'] } }, [line('x-a', '2'), line('x-a', '1')], false, true],
  [{ exact: { 'x-a': ['1'] } }, [line('x-a', '2, 1')], false, true],
  [{ exact: { 'x-a': ['1'] } }, [line('x-a', '1,2')], false, true],
  [{ exact: { 'x-a': ['1, 2'] } }, [line('x-a', '1, 2')], true, true],
  [{ exact: { 'x-a': ['1, 2'] } }, [line('x-a', '1'), line('x-a', '2')], false, true],
  [{ exact: { 'x-a': ['1'], 'x-b': ['2'] } }, [line('x-a', '1')], false, false],
  [{ regex: { 'x-a': '^1' } }, [line('x-a', '12')], true, true],
  [{ regex: { 'x-a': '^1' } }, [line('x-a', '2')], false, false],
  [{ regex: { 'x-a': '^1' } }, [line('x-a', '12'), line('x-a', '2')], false, true],
  [{ regex: { 'x-a': '^1' } }, [line('x-a', '2, 12')], false, true],
  [{ regex: { 'x-a': '^1' } }, [], false, false],
  [{ ...present('x-a'), ...absent('x-b') }, [line('x-a')], true, true],
  [{ ...present('x-a'), ...absent('x-b') }, [line('x-a'), line('x-b')], false, false],
  // A header name with `_` is undecidable if the rule names the same header with `-`, because servers may
  // treat both names as equal.
  [present('x-a'), [line('x_a')], false, true],
  [present('x-a'), [line('x-a'), line('x_a')], false, true],
  [absent('x-a'), [line('x_a')], false, true],
  [absent('x_a'), [line('x-a')], false, true],
  [present('x_a'), [line('x_a')], true, true],
  [present('x_a', 'x-a'), [line('x_a'), line('x-a')], true, true],
  [present('x-a-b'), [line('x-a_b')], false, true],
  [{ exact: { 'x-a': ['1'] } }, [line('x-a', '1'), line('x_a', '1')], false, true],
  [present('x-a'), [line('x-a'), line('x_b')], true, true],
];

describe('the HTTP block of a rule', () => {
  it.each(pathsOfContract())(
    'as in D24 of docs/contract.md, the path matcher %j and the request path %j make an allow rule match %s, and a deny rule %s',
    (path, sent, allow, deny) => {
      expect(decisionsFor({ path }, { path: sent })).toEqual(decisions(allow, deny));
    },
  );

  it.each([
    [{ path: { exact: ['/b'] } }, { path: '/a' }, 'allow', { matcher: 'path', view: 'raw' }],
    [{ path: { prefix: ['/a'] } }, { path: '/a/../b' }, 'allow', { matcher: 'path', view: 'normalised' }],
    [{ path: { prefix: ['/a/'] } }, { path: '/a/..%2fb' }, 'allow', { matcher: 'path', view: 'decoded' }],
    [{ path: { prefix: ['/'] } }, { path: '/%00' }, 'allow', { matcher: 'path', view: 'unreadable' }],
    [{ path: { prefix: ['/'] } }, { path: '/a' }, 'allow', null],
    [{ path: { prefix: ['/b'] } }, { path: '/a/..%2fb' }, 'deny', { matcher: 'path', view: 'decoded' }],
    [{ path: { prefix: ['/b'] } }, { path: '/a' }, 'deny', { matcher: 'path', view: null }],
    [{ methods: ['PUT'], path: { prefix: ['/'] } }, {}, 'allow', { matcher: 'methods', view: null }],
    [{ host: { exact: ['b.test'] } }, {}, 'allow', { matcher: 'host', view: null }],
    [{ query: { keys_present: ['b'] } }, {}, 'deny', { matcher: 'query', view: null }],
    [{ headers: { require_present: ['b'] } }, {}, 'deny', { matcher: 'headers', view: null }],
    [{ methods: ['GET'] }, {}, 'deny', null],
  ] as const)(
    'for the HTTP attributes %j and the request %j, `decidingMatcher` returns the matcher that an %s rule reports: %j',
    (config, differs, action, decisive) => {
      expect(decidingMatcher(config as HttpRequestMatchConfig, { ...facts, ...differs }, action)).toEqual(decisive);
    },
  );

  it.each(PATHS)(
    'the path matcher %j for the path %j makes an allow rule match %s, and a deny rule %s',
    (path, sent, allow, deny) => {
      expect(decisionsFor({ path }, { path: sent })).toEqual(decisions(allow, deny));
    },
  );

  it.each(queries)(
    'the query matcher %j for the query %j makes an allow rule match %s, and a deny rule %s',
    (query, sent, allow, deny) => {
      expect(decisionsFor({ query }, { query: sent })).toEqual(decisions(allow, deny));
    },
  );

  it.each(headers)(
    'the header matcher %j for the headers %j makes an allow rule match %s, and a deny rule %s',
    (config, sent, allow, deny) => {
      expect(decisionsFor({ headers: config }, { headers: sent })).toEqual(decisions(allow, deny));
    },
  );

  it.each<[HttpRequestMatchConfig | undefined, Partial<RequestFacts>, boolean]>([
    [undefined, {}, true],
    [{ methods: ['GET'] }, {}, true],
    [{ methods: ['GET', 'PUT'] }, { method: 'PUT' }, true],
    [{ methods: ['GET'] }, { method: 'HEAD' }, false],
    [{ methods: ['GET'] }, { method: 'get' }, false],
    [{ host: { exact: ['a.test'] } }, {}, true],
    [{ host: { exact: ['b.test'] } }, {}, false],
    [{ host: { exact: ['b.test', 'a.test'] } }, {}, true],
    [{ host: { exact: ['*.test'] } }, {}, true],
    [{ host: { exact: ['*.a.test'] } }, {}, false],
    [{ host: { exact: ['*.a.test'] } }, { host: 'x.a.test' }, true],
    [{ host: { exact: ['\u00e4.test'] } }, { host: 'xn--4ca.test' }, true],
    [{ host: { exact: ['192.0.2.7'] } }, { host: '192.0.2.7' }, true],
    [{ host: { exact: ['[2001:db8::1]'] } }, { host: '[2001:db8::1]' }, true],
    [{ host: { exact: ['b.test'], regex: '^A\\.' } }, {}, true],
    [{ host: { regex: '^b\\.' } }, {}, false],
    [{ host: { exact: ['a.test'] }, methods: ['GET'], path: { exact: ['/'] } }, {}, true],
    [{ host: { exact: ['a.test'] }, methods: ['PUT'], path: { exact: ['/'] } }, {}, false],
    [{ host: { exact: ['a.test'] }, methods: ['GET'], path: { exact: ['/a'] } }, {}, false],
    [{ methods: ['PUT'], path: { exact: ['/a'] } }, { path: '/%2f' }, false],
  ])('the HTTP request matcher %j of a rule matches the request %j (expected: %s)', (config, differs, matches) => {
    expect(decisionsFor(config, differs)).toEqual(decisions(matches, matches));
  });

  it('an allow rule does not match, and a deny rule matches, if a path, query value or header is too long for a regular expression', () => {
    const long = {
      path: `/${'a'.repeat(8_192)}`,
      query: `a=${'a'.repeat(8_193)}`,
      headers: [line('x', 'a'.repeat(8_193))],
    };
    const request = { ...facts, ...long };
    const configs: HttpRequestMatchConfig[] = [
      { path: { regex: 'b' } },
      { query: { key_values_regex: { a: 'b' } } },
      { headers: { regex: { x: 'b' } } },
    ];
    expect(configs.map((config) => matchRequest(config, request, 'allow'))).toEqual(['no', 'no', 'no']);
    expect(configs.map((config) => matchRequest(config, request, 'deny'))).toEqual(['yes', 'yes', 'yes']);
  });

  it('the HTTP block of a rule matches a request path among 200,000 configured paths', () => {
    const exact = Array.from({ length: 200_000 }, (_, index) => `/${index}`);
    const config = { path: { exact } };
    const request = { ...facts, path: '/199999' };
    expect([matchRequest(config, request, 'allow'), matchRequest(config, request, 'deny')]).toEqual(['yes', 'yes']);
  });

  it('the HTTP block of a rule matches one query key of a request that has ten thousand query keys', () => {
    const query = Array.from({ length: 10_000 }, (_, index) => `k${index}=${index}`).join('&');
    expect(decisionsFor({ query: { key_values_exact: { k9999: ['9999'] } } }, { query })).toEqual(['yes', 'yes']);
  });

  it.each<[HeaderMatchConfig, Headers, string | null]>([
    [{ deny_present: ['x-a'] }, [], null],
    [{ deny_present: ['x-a', 'x-b'] }, [line('x-b')], '/response/headers/deny_present/x-b'],
    [{ require_present: ['x-a'] }, [], '/response/headers/require_present/x-a'],
    [{ exact: { 'x~': ['1'] } }, [line('x~', '2')], '/response/headers/exact/x~0'],
    [{ exact: { 'x-a': ['1'] } }, [line('x-a', '1'), line('x-a', '2')], '/response/headers/exact/x-a'],
    [{ exact: { 'x-a': ['1'] } }, [line('x-a', '1')], null],
    [{ regex: { 'x-a': '^1' } }, [line('x-a', '2')], '/response/headers/regex/x-a'],
    [{ regex: { 'x-a': '^1' } }, [line('x-a', `1${'a'.repeat(8_192)}`)], '/response/headers/regex/x-a'],
  ])(
    'the HTTP response matcher %j of a rule reports for the response headers %j the violated matcher %s',
    (config, sent, pointer) => {
      expect(violatedMatcher({ headers: config }, { headers: sent })).toBe(pointer);
    },
  );

  it('an HTTP block without response matchers reports no violated matcher', () => {
    expect([violatedMatcher(undefined, { headers: [] }), violatedMatcher({}, { headers: [] })]).toEqual([null, null]);
  });
});

const piece = fc.constantFrom(
  '/',
  '/',
  '..',
  '.',
  'a',
  'b',
  ';',
  'x',
  '%2e',
  '%61',
  '%41',
  '%3b',
  '%40',
  '@',
  '\\',
  '%c3',
  '%25',
  '%2f',
  '%',
);
const path = fc.array(piece, { maxLength: 10 }).map((pieces) => `/${pieces.join('')}`);
const key = fc.constantFrom('a', 'b', 'x-a', 'x_a');
const value = fc.constantFrom('', '1', '2', 'a', 'a, 1', '1,2');
const source = fc.constantFrom('1', '^a', 'b$', '^/a', '[0-9]$', '\\.\\.');
const lists = fc.dictionary(key, fc.array(value, { minLength: 1, maxLength: 2 }), { maxKeys: 2 });
const sources = fc.dictionary(key, source, { maxKeys: 1 });
const keys = fc.array(key, { maxLength: 2 });

const config: fc.Arbitrary<HttpRequestMatchConfig> = fc.record(
  {
    methods: fc.subarray(['GET', 'PUT']),
    host: fc.record(
      { exact: fc.constantFrom(['a.test'], ['*.test'], ['*.a.test']), regex: source },
      { requiredKeys: [] },
    ),
    path: fc.record(
      { exact: fc.array(path, { maxLength: 2 }), prefix: fc.array(path, { maxLength: 2 }), regex: source },
      { requiredKeys: [] },
    ),
    query: fc.record({ keys_present: keys, key_values_exact: lists, key_values_regex: sources }, { requiredKeys: [] }),
    headers: fc.record(
      { require_present: keys, deny_present: keys, exact: lists, regex: sources },
      { requiredKeys: [] },
    ),
  },
  { requiredKeys: [] },
);

const request: fc.Arbitrary<RequestFacts> = fc.record({
  method: fc.constantFrom('GET', 'PUT', 'get'),
  host: fc.constantFrom('a.test', 'b'),
  path,
  query: fc.option(
    fc
      .array(fc.constantFrom('a', 'b', '=', '&', '1', '+', '%61', '%c3%a4', '%', ';', '?'), { maxLength: 12 })
      .map((all) => all.join('')),
  ),
  headers: fc.array(fc.tuple(key, value), { maxLength: 4 }),
});

describe('`matchRequest`', () => {
  it('`matchRequest` returns the same result as the reference implementation for random requests', () => {
    fc.assert(
      fc.property(
        config,
        request,
        fc.constantFrom('allow' as const, 'deny' as const),
        (block, sent, action) => matchRequest(block, sent, action) === referenceMatch(block, sent, action),
      ),
      { numRuns: 5_000 },
    );
  });

  it('`normalPath` returns the same path as the reference implementation for random readable paths', () => {
    fc.assert(
      fc.property(path, (sent) => decodedPaths(sent) === null || normalPath(sent) === plainPath(sent)),
      { numRuns: 5_000 },
    );
  });

  it('`matchRequest` matches for a deny rule every request that the same HTTP block matches for an allow rule', () => {
    fc.assert(
      fc.property(
        config,
        request,
        (block, sent) => matchRequest(block, sent, 'allow') === 'no' || matchRequest(block, sent, 'deny') === 'yes',
      ),
      { numRuns: 5_000 },
    );
  });
});
