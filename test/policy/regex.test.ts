import { describe, expect, it } from 'vitest';
import { anchorsOf, compileRegex } from '#policy/regex.js';

describe('regular expressions', () => {
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
  ])('says where %j is wrong', (source, fault) => {
    expect(compileRegex(source)).toEqual({ ok: false, code: 'invalid_regex', fault });
    expect(compileRegex(source, { caseInsensitive: true })).toEqual({ ok: false, code: 'invalid_regex', fault });
  });

  it('counts the length in bytes', () => {
    expect(compileRegex('é'.repeat(512)).ok).toBe(true);
    expect(compileRegex(`${'é'.repeat(512)}a`)).toEqual({
      ok: false,
      code: 'regex_too_long',
      fault: 'longer than 1024 bytes',
    });
  });

  it('searches unanchored, in linear time', () => {
    const compiled = compileRegex('(a+)+$');
    expect(compiled.ok && compiled.regex.test(`${'a'.repeat(5000)}!`)).toBe(false);
    expect(compiled.ok && compiled.regex.test('bbbaaa')).toBe(true);
  });

  it('keeps the two ways to look at case apart', () => {
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
  ])('%s is tied to the start: %s, to the end: %s', (source, start, end) => {
    expect(anchorsOf(source)).toEqual({ start, end });
  });
});
