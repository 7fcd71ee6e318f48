import { describe, expect, test } from 'vitest';
import type { PolicyConfig, RuleConfig, SourceGroupConfig } from '#contracts/policy/policy-document.js';
import type { Problem, Warning } from '#contracts/policy/policy-problem.js';
import type { TextEdit } from '#contracts/policy/policy-record.js';
import { deleteGroup, type GroupWriteContext, type ParsedPolicy, putGroup } from '#policy/check/group-write.js';
import { type ReadPolicy, readPolicy } from '#policy/check/read-policy.js';
import { ContainingGroups } from '#policy/check/shadow/containing-groups.js';
import { compile } from '#policy/compile/compile.js';
import { CompileMemory } from '#policy/compile/compile-memory.js';
import { expectEqual } from '#test/expect-equal.js';
import { Random, seedOf } from '#test/seed.js';

const context: GroupWriteContext = {
  integrations: new Set(['prod']),
  parseCertificate: () => undefined,
  dns: true,
  servicePlane: false,
  fallback: 'deny',
};
type Form = 'envelope' | 'singleton';
type Read = Extract<ReadPolicy, { ok: true }>;

function read(text: string, form: Form): Read {
  const body = form === 'envelope' ? `{"mode":"audit","policy":${text}}` : text;
  const found = readPolicy(body, { ...context, form, recordMode: 'audit' });
  if (!found.ok) throw new Error(JSON.stringify(found.problems));
  return found;
}
const applied = (text: Buffer, edit: TextEdit): Buffer =>
  Buffer.concat([text.subarray(0, edit.from), edit.text, text.subarray(edit.to)]);
const bytes = (value: unknown): Uint8Array => new TextEncoder().encode(JSON.stringify(value));

function randomGroup(random: Random, id: string, form: Form): SourceGroupConfig {
  const cidr = () => `10.${random.below(3)}.0.${random.below(4)}/${random.pick([8, 16, 30, 32])}`;
  const rule = (index: number): RuleConfig => ({
    id: `r${index}`,
    ...(random.chance(0.2) ? { priority: random.below(4) } : {}),
    action: random.pick(['allow', 'Deny']),
    ...(random.chance(0.2) ? { mode: random.pick(['audit', 'enforce'] as const) } : {}),
    match: {
      ...(random.chance(0.6) ? { dst_cidrs: [cidr()] } : {}),
      ...(random.chance(0.3)
        ? { dns_hostname: random.pick(['*.example.com', 'api', '*', '^www[0-9]\\.', 'a.example.com']) }
        : {}),
      proto: random.pick(['tcp', 'udp', 'any']),
      ...(random.chance(0.6) ? { dst_ports: [random.pick([53, 80, '80-90'])] } : {}),
      ...(random.chance(0.2) ? { src_ports: ['1000-2000'] } : {}),
    },
  });
  return {
    id,
    ...(form === 'singleton' ? { mode: random.pick(['audit', 'enforce'] as const) } : {}),
    ...(random.chance(0.3) ? { priority: random.below(6) } : {}),
    sources: {
      cidrs: random.some(1, 2, cidr),
      ...(random.chance(0.1) ? { kubernetes: [{ integration: 'prod', node_selector: {} }] } : {}),
    },
    ...(random.chance(0.8) ? { rules: Array.from({ length: random.between(0, 5) }, (_, index) => rule(index)) } : {}),
    ...(random.chance(0.2) ? { default_action: random.pick(['allow', 'deny']) } : {}),
  };
}

/**
 * Converts the pointers of the warnings of a group write to the pointers that a write of the whole policy
 * reports.
 */
function inPolicy(warnings: readonly Warning[], index: number | undefined): string[] {
  const base = index === undefined ? '' : `/source_groups/${index}`;
  return warnings
    .map(({ pointer, code }) => `${code} ${pointer.startsWith('/policy') ? pointer.slice(7) : base + pointer}`)
    .sort();
}

describe('`putGroup` and `deleteGroup` in random sequence', () => {
  const seed = seedOf(4_211);

  test.each<[Form, string | undefined]>([
    ['singleton', undefined],
    ['envelope', undefined],
    ['envelope', '  '],
  ])(
    '`putGroup` and `deleteGroup` give the same result as a write of the whole policy (%s form, JSON indented by %j)',
    (form, space) => {
      for (let round = 0; round < 25; round++) {
        const random = new Random(seed + round * 7919);
        let document: PolicyConfig = random.chance(0.5) ? {} : { default_policy: 'allow', source_groups: [] };
        let text: Buffer = Buffer.from(JSON.stringify(document, null, space));
        let parsed: ParsedPolicy = read(text.toString(), form).parsed;
        const memory = new CompileMemory();
        const containingGroups = new ContainingGroups();
        for (let step = 0; step < 25; step++) {
          const groups = document.source_groups ?? [];
          const id = `g${random.below(8)}`;
          const index = groups.findIndex((group) => group.id === id);
          const group = random.chance(0.3) ? null : randomGroup(random, id, form);
          const write =
            group === null
              ? deleteGroup(parsed, id, { ...context, containingGroups })
              : putGroup(parsed, id, Buffer.from(` ${JSON.stringify(group, null, space)}\n`), {
                  ...context,
                  containingGroups,
                });
          if (group === null && index === -1) {
            expect(write).toBeNull();
            continue;
          }
          if (write?.ok !== true) throw new Error(JSON.stringify(write));
          document = {
            ...document,
            source_groups:
              group === null
                ? groups.toSpliced(index, 1)
                : index === -1
                  ? [...groups, group]
                  : groups.with(index, group),
          };
          text = applied(text, write.edit);
          parsed = write.parsed;
          expectEqual(JSON.parse(text.toString()), document);
          if (space === undefined) expectEqual(text.toString(), JSON.stringify(document));

          const whole = read(text.toString(), form);
          expectEqual(parsed, whole.parsed);
          expectEqual(write.policy, whole.policy);
          expectEqual(compile(write.policy, { memory }), compile(whole.policy));
          const place = group === null ? undefined : index === -1 ? groups.length : index;
          const base = form === 'envelope' ? '/policy' : '';
          expectEqual(
            inPolicy(write.warnings, place),
            whole.warnings.map(({ pointer, code }) => `${code} ${pointer.slice(base.length)}`).sort(),
          );
        }
      }
      console.log(`group writes: 25 policies × 25 writes, ${form}, seed ${seed}`);
    },
  );
});

const lan = { id: 'lan', sources: { cidrs: ['10.0.0.0/8'] }, rules: [{ id: 'r', action: 'allow', match: {} }] };
const wan = { id: 'wan', sources: { cidrs: ['192.0.2.0/24'] } };
const kube = { id: 'kube', sources: { kubernetes: [{ integration: 'prod', node_selector: {} }] } };
const heldOf = (...groups: readonly unknown[]) => read(JSON.stringify({ source_groups: groups }), 'envelope').parsed;
const problemLines = (write: { ok: boolean; problems?: readonly Problem[] }): string[] =>
  (write.problems ?? []).map(({ pointer, code }) => `${code} ${pointer}`);

describe('`putGroup` and `deleteGroup`', () => {
  test('`putGroup` (writes one source group into a policy) inserts the id from the URL path if the body has no id', () => {
    const { id: _, ...nameless } = wan;
    const write = putGroup(heldOf(lan), 'wän "1"', bytes(nameless), context);
    if (!write.ok) throw new Error('refused');
    expect(write.created).toBe(true);
    expect(JSON.parse(Buffer.from(write.groupJson ?? []).toString())).toEqual({ ...wan, id: 'wän "1"' });
  });

  test.each<[string, unknown, string[]]>([
    ['an id that differs from the path', { ...wan, id: 'lan' }, ['id_mismatch /id']],
    ['a mode in the envelope form', { ...wan, mode: 'audit' }, ['mode_not_allowed /mode']],
    ['a group without sources', { id: 'wan', sources: {} }, ['empty_sources /sources']],
    ['a body that is a JSON array', [wan], ['invalid_type ']],
    [
      'a group with three problems, and reports all three',
      { ...wan, rules: [lan.rules[0], { ...lan.rules[0], action: 'drop' }], other: 1 },
      ['unknown_field /other', 'duplicate_id /rules/1/id', 'invalid_action /rules/1/action'],
    ],
    [
      'an integration that does not exist',
      { ...wan, sources: { kubernetes: [{ integration: 'test', node_selector: {} }] } },
      ['unknown_integration /sources/kubernetes/0/integration'],
    ],
  ])('`putGroup` (writes one source group into a policy) rejects an invalid group: %s', (_, body, problems) => {
    const write = putGroup(heldOf(lan), 'wan', bytes(body), context);
    expect([write.ok, problemLines(write as never)]).toEqual([false, problems]);
  });

  test('`putGroup` (writes one source group into a policy) requires a mode in the group if the policy is in singleton form (without a mode for the whole policy)', () => {
    const { parsed } = read(JSON.stringify({ source_groups: [{ ...lan, mode: 'audit' }] }), 'singleton');
    expect(problemLines(putGroup(parsed, 'wan', bytes(wan), context) as never)).toEqual(['mode_required /mode']);
  });

  test('`putGroup` (writes one source group into a policy) rejects a body that is not JSON', () => {
    const write = putGroup(heldOf(lan), 'wan', Buffer.from('{"id": "wan",}'), context);
    expect(write).toMatchObject({ ok: false, code: 'invalid_body' });
  });

  test('`putGroup` and `deleteGroup` reject a write if another group of the policy names an integration that no longer exists', () => {
    const parsed = heldOf(lan, kube);
    const gone = { ...context, integrations: new Set<string>() };
    const problem = ['unknown_integration /policy/source_groups/1/sources/kubernetes/0/integration'];
    expect(problemLines(putGroup(parsed, 'wan', bytes(wan), gone) as never)).toEqual(problem);
    expect(problemLines(deleteGroup(heldOf(lan, wan, kube), 'lan', gone) as never)).toEqual(problem);
    expect(deleteGroup(parsed, 'kube', gone)?.ok).toBe(true);
  });

  test('`putGroup` (writes one source group into a policy) rejects a group that raises the policy above 100,000 rules or 100,000 groups', () => {
    const rules = Array.from({ length: 99_999 }, (_, index) => ({ ...lan.rules[0], id: `r${index}` }));
    const parsed = heldOf({ ...lan, rules });
    const two = { ...wan, rules: [lan.rules[0], { ...lan.rules[0], id: 's' }] };
    expect(problemLines(putGroup(parsed, 'wan', bytes(two), context) as never)).toEqual(['too_many /rules']);
    expect(putGroup(parsed, 'lan', bytes({ ...two, id: 'lan' }), context).ok).toBe(true);
    const many = heldOf(...Array.from({ length: 100_000 }, (_, index) => ({ ...wan, id: `g${index}` })));
    expect(problemLines(putGroup(many, 'wan', bytes(wan), context) as never)).toEqual(['too_many ']);
    expect(putGroup(many, 'g7', bytes({ ...wan, id: 'g7' }), context).ok).toBe(true);
  });

  test('`putGroup` (writes one source group into a policy) lists first the warnings about the written group, and then those about other groups with pointers from the root', () => {
    const open = { ...lan, default_action: 'allow', sources: { cidrs: ['0.0.0.0/0'] }, rules: [] };
    const write = putGroup(heldOf(lan, wan), 'lan', bytes({ ...open, sources: { cidrs: ['1.0.0.0/0'] } }), context);
    if (!write.ok) throw new Error('refused');
    expect(write.warnings.map(({ pointer, code }) => `${code} ${pointer}`)).toEqual([
      'host_bits /sources/cidrs/0',
      'unreachable_group /policy/source_groups/1',
    ]);
  });
});
