import { describe, expect, it } from 'vitest';
import { validatePolicy } from '#policy/check/validation/validate.js';
import { LIMITS } from '#policy/document/limits.js';
import { anchorsOf, compileRegex } from '#policy/model/names/regex.js';
import { ProgressClock } from '#test/progress-clock.js';

describe('`compileRegex` and `anchorsOf`', () => {
  it.each([
    ['a(b(c)', 'missing closing ) at character 2'],
    ['a[)]b)', 'unexpected ) at character 6'],
    ['(a)\\1', 'invalid escape sequence at character 4: \\1'],
    ['ab(?=x)', 'invalid or unsupported Perl syntax at character 3: (?='],
    ['a{1001}', 'invalid repeat count at character 2: {1001}'],
    ['x[z-a]', 'invalid character class range at character 3: z-a'],
    ['x**', 'invalid nested repetition operator at character 2: **'],
    ['*', 'missing argument to repetition operator at character 1: *'],
    ['abc\\', 'trailing backslash at end of expression at character 4'],
    ['x[a', 'missing closing ] at character 2: [a'],
  ])('`compileRegex` reports the position of the error in the expression %j', (source, fault) => {
    expect(compileRegex(source)).toEqual({ ok: false, code: 'invalid_regex', fault });
    expect(compileRegex(source, { caseInsensitive: true })).toEqual({ ok: false, code: 'invalid_regex', fault });
  });

  it('`compileRegex` limits a regular expression to 1,024 bytes of UTF-8, not 1,024 characters', () => {
    expect(compileRegex('é'.repeat(512)).ok).toBe(true);
    expect(compileRegex(`${'é'.repeat(512)}a`)).toEqual({
      ok: false,
      code: 'regex_too_long',
      fault: 'longer than 1024 bytes',
    });
  });

  it('`compileRegex` returns a regular expression that searches anywhere in a text, in linear time', () => {
    const compiled = compileRegex('(a+)+$');
    expect(compiled.ok && compiled.regex.test(`${'a'.repeat(5000)}!`)).toBe(false);
    expect(compiled.ok && compiled.regex.test('bbbaaa')).toBe(true);
  });

  it('`compileRegex` caches case-sensitive and case-insensitive regular expressions separately', () => {
    const [plain, either] = [compileRegex('Abc'), compileRegex('Abc', { caseInsensitive: true })];
    expect([plain.ok && plain.regex.test('aBC'), either.ok && either.regex.test('aBC')]).toEqual([false, true]);
  });

  it.each([
    ['^a$', true, true],
    ['(?i)^a$', true, true],
    ['\\Aa\\z', true, true],
    ['a', false, false],
    ['^a', true, false],
    ['a$', false, true],
    ['^a\\$', true, false],
    ['^a\\\\$', true, true],
    ['^a$|^b$', true, true],
    ['^a|b$', false, false],
    ['(^a$|^b$)', true, true],
    ['(?:^a$|b$)', false, true],
    ['^(a|b)$', true, true],
    ['^[|(]$', true, true],
    ['(^a)(b$)', false, false],
    ['^[]|)]$', true, true],
  ])(
    '`anchorsOf` reports for the expression %s whether it has an anchor at the start (%s) and at the end (%s)',
    (source, start, end) => {
      expect(anchorsOf(source)).toEqual({ start, end });
    },
  );
});

describe('`validatePolicy` with the size limits of compiled regular expressions', () => {
  const fault = (sources: readonly string[]) =>
    validatePolicy(
      {
        source_groups: [
          {
            id: 'g',
            mode: 'enforce',
            sources: { ips: ['10.0.0.1'] },
            rules: sources.map((source, at) => ({ id: `r${at}`, action: 'allow', match: { dns_hostname: source } })),
          },
        ],
      },
      { form: 'singleton', integrations: undefined, parseCertificate: () => undefined },
    ).map(({ pointer, code }) => `${code} ${pointer}`);
  const EVERYWHERE: readonly (readonly [string, (source: string) => unknown])[] = [
    ['dns_hostname', (source) => ({ dns_hostname: source })],
    ['tls/sni', (source) => ({ tls: { sni: source } })],
    ['tls/server_san/regex', (source) => ({ tls: { server_san: { regex: source } } })],
    ['tls/server_cn', (source) => ({ tls: { server_cn: source } })],
    ['tls/http/request/host/regex', (source) => http({ host: { regex: source } })],
    ['tls/http/request/path/regex', (source) => http({ path: { regex: source } })],
    ['tls/http/request/query/key_values_regex/k', (source) => http({ query: { key_values_regex: { k: source } } })],
    ['tls/http/request/headers/regex/h', (source) => http({ headers: { regex: { h: source } } })],
    [
      'tls/http/response/headers/regex/h',
      (source) => ({ tls: { mode: 'intercept', http: { response: { headers: { regex: { h: source } } } } } }),
    ],
  ];
  const http = (request: unknown) => ({ tls: { mode: 'intercept', http: { request } } });

  it.each(EVERYWHERE)(
    '`validatePolicy` rejects a regular expression above the instruction limit in the field %s',
    (pointer, match) => {
      const problems = (source: string) =>
        validatePolicy(
          {
            source_groups: [
              {
                id: 'g',
                mode: 'enforce',
                sources: { ips: ['10.0.0.1'] },
                rules: [{ id: 'r', action: 'allow', match: match(source) }],
              },
            ],
          },
          { form: 'singleton', integrations: undefined, parseCertificate: () => undefined },
        ).map(({ pointer: at, code }) => [at, code]);
      expect(problems('^(x{990})$')).toEqual([]);
      expect(problems('^(x{1000})$')).toEqual([[`/source_groups/0/rules/0/match/${pointer}`, 'regex_too_large']]);
    },
  );

  it('`validatePolicy` rejects a policy whose regular expressions together exceed the limit, and compiles no more of them', () => {
    const large = (count: number, each: string) => Array.from({ length: count }, (_, at) => `^${at}${each}$`);
    expect(fault(large(100, '(x{980})'))).toEqual([]);
    expect(fault(large(110, '(x{980})'))).toEqual(['too_many /source_groups']);
    const clock = new ProgressClock();
    // If `validatePolicy` compiles all 1,000 regular expressions instead of stopping at the limit, the call
    // below takes more than a minute.
    expect(fault(large(1_000, '\\pL{1000}'.repeat(100)))).toContain('too_many /source_groups');
    expect(clock.ms()).toBeLessThan(10_000);
  });

  it('`validatePolicy` accepts a regular expression above the limit if the policy is read from the store', () => {
    const stored = {
      form: 'singleton',
      integrations: undefined,
      parseCertificate: () => undefined,
      isStored: true,
    } as const;
    const document = {
      source_groups: [
        {
          id: 'g',
          mode: 'enforce',
          sources: { ips: ['10.0.0.1'] },
          rules: [{ id: 'r', action: 'allow', match: { dns_hostname: '^(x{1000})$' } }],
        },
      ],
    };
    expect(validatePolicy(document, stored)).toEqual([]);
  });

  it.each(evilPatterns())(
    '`validatePolicy` allows %j only if a search of 64 KiB of text takes at most 50 ms of processor time',
    (source, text) => {
      const compiled = compileRegex(source);
      if (!compiled.ok || compiled.instructions > LIMITS.regexInstructions) return;
      let best = Number.POSITIVE_INFINITY;
      for (let turn = 0; turn < 20 && best > 50; turn++) {
        const before = process.cpuUsage();
        compiled.regex.test(text);
        best = Math.min(best, process.cpuUsage(before).user / 1_000);
      }
      expect(best).toBeLessThanOrEqual(50);
    },
  );
});

/**
 * Returns 200 pairs of a regular expression and a text of 64 KiB. In a backtracking engine each search takes
 * exponential or polynomial time.
 */
function evilPatterns(): (readonly [string, string])[] {
  const units = ['a', '[a-z]', '\\w', '(a|b)', 'a?', '(?:a|aa)', '.', '[^b]', '\\pL', '(?i:a)'];
  const shapes: ((unit: string) => string)[] = [
    (unit) => `(${unit}+)+$`,
    (unit) => `(${unit}*)*b`,
    (unit) => `^(${unit}|${unit})+$`,
    (unit) => `(${unit}+)+(${unit}+)+c`,
    (unit) => `${unit}*${unit}*${unit}*!`,
    (unit) => `^(${unit}+)*${unit}{20}!`,
    (unit) => `(.*${unit}){20}!`,
    (unit) => `(${unit}|.)*(${unit}|.)*!`,
    (unit) => `(${unit}{1,20}){1,20}!`,
    (unit) => `^(([${'a-c'}])+.)+${unit}!`,
    (unit) => `(${unit}?){100}${unit}{100}!`,
    (unit) => `(x+x+)+y|(${unit}+)+!`,
    (unit) => `^${unit}+${unit}+${unit}+${unit}+$!`,
    (unit) => `(${unit}(${unit}(${unit})*)*)*!`,
    (unit) => `\\s+$|(${unit}+\\s?)*!`,
    (unit) => `(?:(?:${unit}+)?)+!`,
    (unit) => `^(?:${unit}+){2,50}$`,
    (unit) => `((${unit}+){1,10}){1,10}$!`,
    (unit) => `(${unit}|${unit}|${unit}|${unit})*!`,
    (unit) => `[\\s\\S]*${unit}[\\s\\S]{100}!`,
  ];
  return shapes.flatMap((shape) => units.map((unit) => [shape(unit), 'a'.repeat(65_536)] as const));
}
