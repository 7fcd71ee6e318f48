import { describe, expect, it } from 'vitest';
import { PolicyTextError, readPolicyText } from '#config/policy/policy-text.js';

const YAML = `# ours
default_policy: deny
source_groups:
  - id: "lan"
    sources: { ips: [10.0.0.7, 10.0.0.8] }
    rules:
      - id: a/b
        match: {}
`;

describe('policy text', () => {
  it('a policy text may be YAML or JSON, and is an envelope (document with name and mode) if it has a member "policy"', () => {
    const { form, value, json } = readPolicyText('mode: audit\npolicy: { default_policy: deny }\n');
    const read = { mode: 'audit', policy: { default_policy: 'deny' } };
    expect({ form, value, json: JSON.parse(json) as unknown }).toEqual({ form: 'envelope', value: read, json: read });
    expect(readPolicyText('{}')).toMatchObject({ form: 'singleton', value: {}, json: '{}' });
    expect(readPolicyText('# nothing\n')).toMatchObject({ form: 'singleton', value: {}, json: '{}' });
  });

  it('a policy text in JSON is sent to the node unchanged, so that the node can refuse repeated keys', () => {
    const text = ' {"default_policy": "deny", "default_policy": "allow"}\n';
    expect(readPolicyText(text).json).toBe(text);
  });

  it.each([
    ['/default_policy', 2, 17],
    ['/source_groups', 3, 1],
    ['/source_groups/0', 4, 5],
    ['/source_groups/0/id', 4, 9],
    ['/source_groups/0/sources/ips/1', 5, 32],
    ['/source_groups/0/rules/0/match', 8, 9],
    ['/source_groups/0/rules/0/action', 7, 9],
    ['/nothing/here', 1, 1],
    ['', 1, 1],
  ])(
    '`weir` finds the JSON pointer %s, or its nearest existing parent, in a YAML policy text at line %i, column %i',
    (pointer, line, column) => {
      expect(readPolicyText(YAML).where(pointer)).toEqual({ line, column });
    },
  );

  it('the line and column of a JSON pointer with the escapes ~0 and ~1 are found in a policy text in JSON', () => {
    expect(readPolicyText('{\n "a/b": {"c~d": 1}}').where('/a~1b/c~0d')).toEqual({ line: 2, column: 17 });
  });

  it('a policy text with 600,000 values gives no line for a JSON pointer, because the search would take too long', () => {
    const ids = Array.from({ length: 300_000 }, (_, id) => id);
    expect(readPolicyText(JSON.stringify({ ids, more: ids })).where('/ids/0')).toBeNull();
  });

  it.each(['a: [', 'a: 1\na: 2\n', '- a\n', '"text"'])(
    'the text %j is refused because it is not a policy document',
    (text) => {
      expect(() => readPolicyText(text)).toThrow(PolicyTextError);
    },
  );

  it.each([
    ['flow lists in YAML', `policy: ${'['.repeat(50_000)}`],
    ['closed flow lists in YAML', `policy: ${'['.repeat(50_000)}${']'.repeat(50_000)}`],
    ['block lists in YAML', `policy:\n${'- '.repeat(50_000)}a\n`],
    ['maps in YAML', `policy: ${'{a: '.repeat(50_000)}`],
    ['lists in JSON', `{"policy": ${'['.repeat(50_000)}${']'.repeat(50_000)}}`],
  ])('a policy text is refused if it has 50,000 nested %s', (_, text) => {
    expect(() => readPolicyText(text)).toThrow('lists and maps are nested deeper than 100');
  });

  it('a policy text may be nested as deep as the API permits, and an error for deeper nesting gives the line and column', () => {
    const nested = (depth: number) => `policy:\n  a: ${'['.repeat(depth)}${']'.repeat(depth)}\n`;
    expect(readPolicyText(nested(32)).form).toBe('envelope');
    expect(() => readPolicyText(nested(200))).toThrow(expect.objectContaining({ place: { line: 2, column: 104 } }));
  });

  it('a policy text is refused if nested YAML aliases expand to too many values', () => {
    const levels = ['a: &a [x,x,x,x,x,x,x,x,x]'];
    for (const [one, before] of [
      ['b', 'a'],
      ['c', 'b'],
      ['d', 'c'],
      ['e', 'd'],
    ])
      levels.push(`${one}: &${one} [${Array.from({ length: 9 }, () => `*${before}`).join(',')}]`);
    expect(() => readPolicyText(levels.join('\n'))).toThrow(PolicyTextError);
  });
});
