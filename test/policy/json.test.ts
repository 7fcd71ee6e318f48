import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseStrictJson } from '#policy/document/json.js';

function problemsOf(input: Uint8Array | string): unknown {
  const parsed = parseStrictJson(input);
  return parsed.ok ? [] : parsed.problems;
}

function spanText(text: string, key: string): string | undefined {
  const parsed = parseStrictJson(text);
  const span = parsed.ok ? parsed.members.get(key) : undefined;
  return parsed.ok && span !== undefined
    ? new TextDecoder().decode(parsed.bytes.subarray(span.start, span.end))
    : undefined;
}

describe('`parseStrictJson`', () => {
  it('`parseStrictJson` accepts generated JSON with blanks around the text, and returns the result of JSON.parse', () => {
    fc.assert(
      fc.property(fc.json({ maxDepth: 5 }), fc.constantFrom('', ' ', '\r\n\t'), (text, space) => {
        const spaced = space + text + space;
        expect(parseStrictJson(spaced)).toMatchObject({ ok: true, value: JSON.parse(text) });
      }),
      { numRuns: 500 },
    );
  });

  it('`parseStrictJson` accepts a mutated JSON text only if JSON.parse accepts it, and returns the result of JSON.parse', () => {
    const alphabet = fc.constantFrom(...'{}[]":,\\u0dtruefalsn-.eE+19 \n\u00e9'.split(''));
    fc.assert(
      fc.property(
        fc.json({ maxDepth: 3 }),
        fc.nat(),
        fc.nat(4),
        fc.array(alphabet, { maxLength: 3 }),
        (text, at, cut, put) => {
          const start = at % (text.length + 1);
          const broken = text.slice(0, start) + put.join('') + text.slice(start + cut);
          const strict = parseStrictJson(broken);
          if (strict.ok) {
            expect(strict.value).toEqual(JSON.parse(broken));
          } else if (
            strict.problems.every(({ code, message }) => code === 'invalid_json' && !message.includes('surrogates'))
          ) {
            expect(() => JSON.parse(broken)).toThrow();
          }
        },
      ),
      { numRuns: 5000 },
    );
  });

  it('`parseStrictJson` rejects a duplicate key in any spelling, and reports the pointer and position of the key', () => {
    expect(problemsOf('{"a": 1,\n "b": [{}, {"x/y": 1, "z": {}, "x\\u002fy": 2}],\n "a": 2}')).toEqual([
      {
        pointer: '/b/1/x~1y',
        code: 'duplicate_key',
        message: 'The key is repeated in this object, at line 2, column 32.',
      },
      {
        pointer: '/a',
        code: 'duplicate_key',
        message: 'The key is repeated in this object, at line 3, column 2.',
      },
    ]);
  });

  it('`parseStrictJson` reports only the duplicate key of an object with 5,001 keys', () => {
    const keys = Array.from({ length: 5000 }, (_, index) => `"k${index}": 0`);
    const [problem, ...rest] = problemsOf(`{${keys.join(',')}, "k4321": 1}`) as { pointer: string }[];
    expect([problem?.pointer, rest]).toEqual(['/k4321', []]);
    expect(problemsOf(`{${keys.join(',')}}`)).toEqual([]);
  });

  it('`parseStrictJson` accepts equal keys in different objects', () => {
    expect(problemsOf('{"a": {"a": {"a": [{"a": 1}, {"a": 1}]}}, "b": {"a": 1}}')).toEqual([]);
  });

  it('`parseStrictJson` accepts 32 levels of nesting and rejects 33 levels', () => {
    expect(problemsOf('['.repeat(32) + ']'.repeat(32))).toEqual([]);
    expect(problemsOf(`{"a":${'['.repeat(32)}${']'.repeat(32)}}`)).toEqual([
      {
        pointer: `/a${'/0'.repeat(31)}`,
        code: 'too_deep',
        message: 'Objects and arrays are nested deeper than 32 at line 1, column 37.',
      },
    ]);
  });

  it('`parseStrictJson` rejects 500,000 open brackets as too deep, without a stack overflow', () => {
    expect(problemsOf('['.repeat(500_000))).toMatchObject([{ code: 'too_deep' }]);
  });

  it.each([
    ['', 1, 1, 'a value', 'the body ends'],
    ['{"a": 1', 1, 8, '"," or "}"', 'the body ends'],
    ['{"a": tru}', 1, 7, 'a value', 'another character follows'],
    ['{"a": 01}', 1, 8, '"," or "}"', 'another character follows'],
    ['[1,]', 1, 4, 'a value', 'another character follows'],
    ['{"a": 1,}', 1, 9, 'a key', 'another character follows'],
    ['{"a" 1}', 1, 6, '":"', 'another character follows'],
    ['[1.]', 1, 4, 'a digit', 'another character follows'],
    ['{}\n{}', 2, 1, 'the end of the body', 'another character follows'],
    ['"\\x"', 1, 3, 'an escape', 'another character follows'],
    ['["é\\ud800"]', 1, 4, 'a pair of surrogates', 'another character follows'],
    ['"abc', 1, 5, 'the closing quote of a string', 'the body ends'],
    ['\ufeff{}', 1, 1, 'a value', 'another character follows'],
  ])(
    '`parseStrictJson` reports for the text %j the line and column where the text stops being JSON',
    (text, line, column, needs, found) => {
      expect(problemsOf(text)).toEqual([
        {
          pointer: '',
          code: 'invalid_json',
          message: `The body is not JSON: at line ${line}, column ${column} ${needs} is expected, but ${found}.`,
        },
      ]);
    },
  );

  it('`parseStrictJson` rejects a control character inside a string', () => {
    expect(problemsOf('"a\nb"')).toMatchObject([{ code: 'invalid_json' }]);
  });

  it.each([[[0x22, 0xff, 0x22]], [[0x22, 0xc0, 0xaf, 0x22]], [[0x22, 0xed, 0xa0, 0x80, 0x22]]])(
    '`parseStrictJson` rejects bytes that are not UTF-8: %j',
    (bytes) => {
      expect(problemsOf(Uint8Array.from(bytes))).toEqual([
        { pointer: '', code: 'invalid_utf8', message: 'The body is not valid UTF-8.' },
      ]);
    },
  );

  it('`parseStrictJson` returns the key __proto__ as an ordinary own property', () => {
    const parsed = parseStrictJson('{"__proto__": {"polluted": true}}');
    expect(parsed.ok && Object.keys(parsed.value as object)).toEqual(['__proto__']);
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });

  it('`parseStrictJson` returns the positions of the members of the outermost object', () => {
    const text = ' { "mode" : "audit" , "pol\\u0069cy" : {"mode": [1, {"policy": 2}]} , "n":-1.5e3}';
    expect(['mode', 'policy', 'n', 'absent'].map((key) => spanText(text, key))).toEqual([
      '"audit"',
      '{"mode": [1, {"policy": 2}]}',
      '-1.5e3',
      undefined,
    ]);
  });
});
