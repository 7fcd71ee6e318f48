import { describe, expect, it } from 'vitest';
import { type ReadContext, readPolicy } from '#policy/check/read-policy.js';

const context: ReadContext = {
  form: 'singleton',
  integrations: new Set(),
  parseCertificate: () => undefined,
  dns: true,
  servicePlane: true,
  recordMode: 'audit',
  fallback: 'deny',
};
const envelope: ReadContext = { ...context, form: 'envelope' };

describe('`readPolicy`', () => {
  it('`readPolicy` reads a body in singleton form (without name and mode), and takes the mode of the policy from the stored record', () => {
    const body = new TextEncoder().encode('{"default_policy": "allow"}\n');
    expect(readPolicy(body, context)).toEqual({
      ok: true,
      parsed: {
        parts: { form: 'singleton', mode: 'audit', defaultPolicy: 'allow', groups: [] },
        outline: { close: 26, hasMembers: true, list: undefined, starts: [], ends: [] },
      },
      policyJson: body,
      name: null,
      policy: { groups: [], default: { action: 'allow', mode: 'audit', from: 'default_policy' } },
      warnings: [],
    });
  });

  it('`readPolicy` reads name, mode and policy text from an envelope (document with name and mode), and returns warnings with pointers into the body', () => {
    const policy = '{ "source_groups": [{"id": "büro", "sources": {"cidrs": ["10.0.0.1/8"]}}] }';
    const read = readPolicy(`{"name": " Main ", "policy" : ${policy}, "mode": "enforce"}`, envelope);
    if (!read.ok) throw new Error('not read');
    const { parsed, ...rest } = read;
    expect([parsed.parts.form, parsed.parts.mode]).toEqual(['envelope', 'enforce']);
    expect(parsed.outline).toEqual({ close: 75, hasMembers: true, list: 19, starts: [20], ends: [73] });
    expect(rest).toEqual({
      ok: true,
      policyJson: new TextEncoder().encode(policy),
      name: 'Main',
      policy: {
        groups: [
          {
            id: 'büro',
            pointer: '/source_groups/0',
            mode: 'enforce',
            sources: [{ address: 0x0a000000, length: 8 }],
            selectors: [],
            rules: [],
            defaultAction: undefined,
          },
        ],
        default: { action: 'deny', mode: 'enforce', from: 'fallback' },
      },
      warnings: [
        {
          pointer: '/policy/source_groups/0/sources/cidrs/0',
          code: 'host_bits',
          message: 'Bits after the prefix are ignored: this is 10.0.0.0/8.',
        },
      ],
    });
  });

  it('`readPolicy` returns the name null if an envelope (document with mode and policy) has no name', () => {
    expect(readPolicy('{"mode": "disabled", "policy": {}}', envelope)).toMatchObject({
      name: null,
      parsed: { parts: { mode: 'disabled' } },
    });
  });

  it.each<[string | Uint8Array, ReadContext, string, string[]]>([
    ['{"default_policy": "allow"', context, 'invalid_body', ['invalid_json ']],
    [Uint8Array.of(0xff), context, 'invalid_body', ['invalid_utf8 ']],
    [
      '{"default_policy": "deny", "default_policy": "allow"}',
      context,
      'invalid_body',
      ['duplicate_key /default_policy'],
    ],
    ['['.repeat(100_000), context, 'invalid_body', [`too_deep ${'/0'.repeat(32)}`]],
    ['{"mode": "enforce", "policy": {}}', context, 'invalid_policy', ['unknown_field /mode', 'unknown_field /policy']],
    [
      '{"default_policy": "deny"}',
      envelope,
      'invalid_policy',
      ['required /mode', 'required /policy', 'unknown_field /default_policy'],
    ],
    ['"deny"', context, 'invalid_policy', ['invalid_type ']],
    [
      '{"source_groups": [{"id": "g", "sources": {"ips": ["10.0.0.1"]}}]}',
      context,
      'invalid_policy',
      ['mode_required /source_groups/0/mode'],
    ],
    [
      '{"__proto__": {"polluted": true}, "constructor": {"prototype": {"polluted": true}}}',
      context,
      'invalid_policy',
      ['unknown_field /__proto__', 'unknown_field /constructor'],
    ],
  ])(
    '`readPolicy` rejects the policy text %j with the codes and pointers of all problems',
    (body, where, code, expected) => {
      const read = readPolicy(body, where);
      expect(read.ok).toBe(false);
      if (read.ok) return;
      expect([read.code, read.problems.map((problem) => `${problem.code} ${problem.pointer}`)]).toEqual([
        code,
        expected,
      ]);
      expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
    },
  );
});
