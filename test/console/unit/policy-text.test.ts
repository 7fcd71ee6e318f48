import { describe, expect, it } from 'vitest';
import { editText } from '../../../console/src/pages/policy/policy-edits.js';
import { readText, rulePlaces, withNames, writeText } from '../../../console/src/pages/policy/policy-text.js';
import { diffLines, mergeTexts } from '../../../console/src/pages/policy/text-diff.js';
import { finish } from '../../../console/src/slices.js';

const POLICY = {
  default_policy: 'deny',
  source_groups: [
    {
      id: 'office',
      mode: 'enforce',
      sources: { cidrs: ['10.1.0.0/24'] },
      rules: [
        { id: 'web', action: 'allow', match: { proto: 'tcp', dst_ports: [80, '443', '8000-8100'] } },
        { id: 'no', action: 'deny', match: {} },
      ],
    },
  ],
};

const large = (rules: number) => ({
  source_groups: [
    {
      id: 'g',
      mode: 'enforce',
      sources: { cidrs: ['10.0.0.0/8'] },
      rules: Array.from({ length: rules }, (_, at) => ({
        id: `rule-${at}`,
        action: 'allow',
        match: {
          dst_cidrs: [`10.${at >> 16}.${(at >> 8) & 255}.${at & 255}/32`],
          proto: 'tcp',
          dst_ports: [at & 65_535],
        },
      })),
    },
  ],
});

describe('the text of a policy', () => {
  it('reads what it wrote, also strings that look like other values', () => {
    const document = {
      ...POLICY,
      strange: ['true', 'no', '1e3', '0x1f', '', ' a ', '- b', '#', 'ü: {', 'a\nb\n', '~', 'null', '2026-11-30', '6'],
      values: [true, null, 1.5, 1e300, {}, [], [[]], { 'a b': { c: [] } }],
    };
    expect(readText(writeText(document)).value).toEqual(document);
  });

  it('writes a large policy as JSON with one rule a line, and finds its rules', () => {
    const document = large(3_000);
    const text = writeText(document);
    expect(text.split('\n').filter((line) => line.includes('"id":"rule-'))).toHaveLength(3_000);
    const read = readText(text);
    expect(read.value).toEqual(document);
    const places = finish(rulePlaces(read));
    expect(places).toHaveLength(3_000);
    expect(text.slice(places[2_999]?.from)).toMatch(/^\{"id":"rule-2999"/);
  });

  it.each([
    ['YAML', writeText(POLICY)],
    ['JSON', JSON.stringify(POLICY, null, 2)],
  ])(
    'has an offset for each JSON pointer: %s. A pointer to a missing member has the offset of its parent',
    (_form, text) => {
      const pointers = [
        '/source_groups/0/rules/0/match/dst_ports/1',
        '/source_groups/0/rules/1/match/proto',
        '/source_groups/0/mode',
      ];
      const places = finish(readText(text).places(pointers));
      const shown = pointers.map((pointer) => text.slice(places.get(pointer)?.from, places.get(pointer)?.to));
      expect(shown).toEqual(['"443"', expect.stringContaining('match'), expect.stringContaining('enforce')]);
    },
  );

  it('has a syntax error with its position, and no value, if it is not valid', () => {
    const { value, syntax } = readText('default_policy: deny\nsource_groups: [ {\n');
    expect(value).toBeNull();
    expect(syntax[0]?.message).toBeTruthy();
  });

  it('gives the names of rules and groups that replace JSON pointers in messages of the node', () => {
    expect(withNames('/source_groups/0/rules/1 decides all', POLICY)).toBe('office / no decides all');
    expect(withNames('/policy/source_groups/0, /source_groups/7', { policy: POLICY })).toBe('office, /source_groups/7');
  });
});

describe('edits of the text of a policy', () => {
  const text = `# head\n${writeText(POLICY).replace('      - id: web', '      # in order\n      - id: web')}`;

  it('insert a rule before another one, and keep comments', () => {
    const rule = { id: 'ssh', action: 'allow', match: { proto: 'tcp', dst_ports: [22] } };
    const edited = finish(editText(text, [{ edit: 'insert_rule', source_group: 'office', before: 'no', rule }]));
    expect(edited).toContain('# head');
    expect(edited).toContain('# in order');
    const changed = (diffLines(text, edited) ?? []).filter(({ kind }) => kind !== 'same');
    expect(changed).toEqual(
      ['      - id: ssh', '        action: allow', '        match: { proto: tcp, dst_ports: [ 22 ] }'].map((line) => ({
        kind: 'added',
        text: line,
      })),
    );
  });

  it('give an inserted rule an unused id', () => {
    const edited = finish(
      editText(text, [
        { edit: 'insert_rule', source_group: 'office', before: null, rule: { id: 'web', action: 'allow', match: {} } },
      ]),
    );
    expect(finish(rulePlaces(readText(edited))).map(({ rule }) => rule)).toEqual(['web', 'no', 'web-2']);
  });

  it('put a rule for one source into a new group before the group that denies it', () => {
    const rule = { id: 'allow-asked', action: 'allow', match: {} };
    const edit = { edit: 'insert_rule', source_group: null, before: 'office', rule, sources: ['10.1.0.7'] } as const;
    const places = finish(rulePlaces(readText(finish(editText(text, [edit])))));
    expect(places.map(({ group, rule: id }) => `${group}/${id}`)).toEqual([
      ...['new-group/allow-asked', 'office/web', 'office/no'],
    ]);
  });

  it.each([
    ['YAML', text],
    ['JSON', JSON.stringify(POLICY)],
  ])('apply the edits of lint to %s', (_form, given) => {
    const rulesAfter = (...edits: Parameters<typeof editText>[1]) =>
      finish(rulePlaces(readText(finish(editText(given, edits))))).map(({ rule }) => rule);
    expect(rulesAfter({ edit: 'remove_rule', source_group: 'office', rule: 'web' })).toEqual(['no']);
    expect(rulesAfter({ edit: 'move_rule', source_group: 'office', rule: 'no', before: 'web' })).toEqual(['no', 'web']);
    expect(rulesAfter({ edit: 'remove_group', source_group: 'office' })).toEqual([]);
    const merged = finish(
      editText(given, [
        { edit: 'replace_rule', source_group: 'office', rule: 'web', match: { dst_ports: [1, 2] }, remove: ['no'] },
      ]),
    );
    expect(readText(merged).value).toMatchObject({
      source_groups: [{ rules: [{ id: 'web', match: { proto: 'tcp', dst_ports: [1, 2] } }] }],
    });
  });

  it('are refused with a message if the text no longer contains the rule', () => {
    expect(() => finish(editText(text, [{ edit: 'remove_rule', source_group: 'office', rule: 'gone' }]))).toThrow(
      'The source group office of the text has no rule gone.',
    );
  });
});

describe('the comparison of two texts', () => {
  it('is a shortest edit from one to the other', () => {
    const random = (length: number, seed: number) =>
      Array.from({ length }, (_, at) => String((at * 7 + seed * (at % 5)) % 6)).join('\n');
    for (let seed = 0; seed < 40; seed++) {
      const [before, after] = [random(30, seed), random(28, seed + 3)];
      const lines = diffLines(before, after) ?? [];
      expect(
        lines
          .filter(({ kind }) => kind !== 'added')
          .map((line) => line.text)
          .join('\n'),
      ).toBe(before);
      expect(
        lines
          .filter(({ kind }) => kind !== 'removed')
          .map((line) => line.text)
          .join('\n'),
      ).toBe(after);
    }
  });

  it('merges two edits of different lines, and refuses to merge edits of the same lines', () => {
    const base = 'a\nb\nc\nd\ne';
    expect(mergeTexts(base, 'a\nB\nc\nd\ne', 'a\nb\nc\nd\ne\nf')).toBe('a\nB\nc\nd\ne\nf');
    expect(mergeTexts(base, 'a\nB\nc\nd\ne', 'a\nd\ne')).toBeNull();
    expect(mergeTexts(base, base, 'a\nc\nd\ne')).toBe('a\nc\nd\ne');
  });
});
