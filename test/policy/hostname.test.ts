import { describe, expect, it } from 'vitest';
import { hostnameListTest, matchesHostname, parseHostname } from '#policy/model/names/hostname.js';

function patternOf(text: string) {
  const parsed = parseHostname(text);
  if ('fault' in parsed) throw new Error(parsed.fault);
  return parsed.pattern;
}

describe('`parseHostname` and `matchesHostname`', () => {
  it.each<[string, string, boolean]>([
    ['api.example.com', 'api.example.com', true],
    ['api.example.com', 'API.Example.COM', true],
    ['API.Example.com', 'api.example.com', true],
    ['api.example.com', 'api.example.com.', true],
    ['api.example.com.', 'api.example.com', true],
    ['api.example.com', 'apixexample.com', false],
    ['api.example.com', 'example.com', false],
    ['api.example.com', 'v1.api.example.com', false],
    ['api.example.com', 'api.example.com.evil.test', false],
    ['example.com', 'notexample.com', false],
    ['localhost', 'localhost', true],
    ['localhost', 'localhost.localdomain', false],
    ['_dns.example.com', '_dns.example.com', true],
    ['xn--mnchen-3ya.de', 'xn--mnchen-3ya.de', true],
    ['10.in-addr.arpa', '10.in-addr.arpa', true],
    ['*.example.com', 'a.example.com', true],
    ['*.example.com', 'a.b.example.com', true],
    ['*.example.com', 'A.EXAMPLE.com.', true],
    ['*.example.com', 'example.com', false],
    ['*.example.com', 'example.com.', false],
    ['*.example.com', 'notexample.com', false],
    ['*.example.com', 'a.example.com.evil.test', false],
    ['*.example.com', 'a.example.org', false],
    ['*.example.com.', 'a.example.com', true],
    ['*.com', 'example.com', true],
    ['*.com', 'com', false],
    ['b\u00fccher.example', 'xn--bcher-kva.example', true],
    ['B\u00dcCHER.example.', 'xn--bcher-kva.example', true],
    ['stra\u00dfe.example', 'xn--strae-oqa.example', true],
    ['*.b\u00fccher.example', 'a.xn--bcher-kva.example', true],
    ['\u4f8b\u3048\u3002jp', 'xn--r8jz45g.jp', true],
    ['*', 'example.com', true],
    ['*', 'com', true],
    ['*', '', true],
    ['^api\\.example\\.com$', 'api.example.com', true],
    ['^api\\.example\\.com$', 'API.example.com.', true],
    ['^api\\.example\\.com$', 'apixexample.com', false],
    ['^API\\.', 'api.example.com', true],
    ['example\\.com', 'a.example.com.evil.test', true],
    ['^(a|b)\\.example\\.com$', 'b.example.com', true],
    ['^(a|b)\\.example\\.com$', 'c.example.com', false],
    ['^[a-z]+\\.example$', 'abc.example', true],
    ['^[a-z]+\\.example$', 'a1.example', false],
    ['example\\.com$', 'example.com.', true],
    ['^$', 'example.com', false],
    ['(?i)^X', 'x.test', true],
    ['^.+\\.example\\.com$', 'example.com', false],
  ])('the hostname pattern %s matches the name %j (expected: %s)', (pattern, name, matches) => {
    const parsed = patternOf(pattern);
    expect(matchesHostname(parsed, name)).toBe(matches);
    if (parsed.kind !== 'regex') expect(hostnameListTest(['other.test', '*.other.test', pattern])(name)).toBe(matches);
  });

  it('an entry of a hostname list that is not a pattern is compared as text', () => {
    const test = hostnameListTest(['Second Name', 'f*.example.com', '*.\u00fc.example']);
    const names = [
      'Second Name',
      'second name',
      'F*.example.com',
      'foo.example.com',
      'a.xn--tda.example',
      'A.\u00dc.example',
    ];
    expect(names.map((name) => test(name))).toEqual([true, false, true, false, true, true]);
  });

  it('a dot inside a DNS label does not match a dot between labels of the pattern', () => {
    expect(matchesHostname(patternOf('good.com'), ['good', 'com'])).toBe(true);
    expect(matchesHostname(patternOf('good.com'), ['good.com'])).toBe(false);
    expect(matchesHostname(patternOf('*.good.com'), ['evil.good', 'com'])).toBe(false);
    expect(matchesHostname(patternOf('^good\\.com$'), ['good.com'])).toBe(false);
  });

  it('`parseHostname` returns the kinds exact, suffix, any and regex', () => {
    expect(['Api.Example.com.', '*.Example.com', '*', '^Api\\.'].map((text) => patternOf(text))).toEqual([
      { kind: 'exact', labels: ['api', 'example', 'com'], text: 'api.example.com' },
      { kind: 'suffix', labels: ['example', 'com'], text: '*.example.com' },
      { kind: 'any', text: '*' },
      { kind: 'regex', text: '^Api\\.' },
    ]);
  });

  const star = '"*" stands alone or as "*." before a name; write a regular expression for anything else';
  it.each([
    ['', 'empty_matcher', 'an empty hostname matches nothing'],
    ['a*.example.com', 'invalid_hostname', star],
    ['api.*.com', 'invalid_hostname', star],
    ['**.example.com', 'invalid_hostname', star],
    ['*.*.com', 'invalid_hostname', star],
    ['*example.com', 'invalid_hostname', star],
    ['.*', 'invalid_hostname', star],
    ['*.', 'invalid_hostname', 'a name has no empty label'],
    ['.', 'invalid_hostname', 'a name has no empty label'],
    ['a..b', 'invalid_hostname', 'a name has no empty label'],
    ['.example.com', 'invalid_hostname', 'a name has no empty label'],
    [`${'a'.repeat(64)}.com`, 'invalid_hostname', 'a label has at most 63 characters'],
    [`${'a.'.repeat(127)}b`, 'invalid_hostname', 'a name has at most 253 characters'],
    ['^(api', 'invalid_regex', 'missing closing ) at character 2'],
    ['^api(?=x)', 'invalid_regex', 'invalid or unsupported Perl syntax at character 5: (?='],
    [`^${'a'.repeat(1024)}`, 'regex_too_long', 'longer than 1024 bytes'],
  ])('`parseHostname` rejects %j', (text, code, fault) => {
    expect(parseHostname(text)).toEqual({ code, fault });
  });
});
