import { afterEach, describe, expect, test } from 'vitest';
import type { Assertion } from '#contracts/analysis/assertion.js';
import type { PolicyOutcome, PolicyWrite } from '#contracts/policy/policy-write.js';
import type { Refusal } from '#contracts/refusal.js';
import type { PolicyThread } from '#policies/thread/policy-thread.js';
import { encodeJson } from '#store/records/json-value.js';
import { sealWith } from '#store/settings/seal.js';
import { assembleStore } from '#store/store.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { noCopy } from '#test/store/stored-policy.js';
import {
  type Running,
  removal,
  startSystem,
  stopSystems,
  threadHere,
  write,
  written,
} from '../../actors/running-system.js';

afterEach(stopSystems);

function refused(outcome: PolicyOutcome): Refusal {
  if (outcome.kind !== 'refused') throw new Error(outcome.kind);
  return outcome;
}
const told = (outcome: PolicyOutcome) =>
  outcome.kind === 'refused' ? outcome.detail : outcome.warnings.filter(({ code }) => code === 'assertion_failed');

const group = (id: string, ...ports: readonly number[]) => ({
  id,
  sources: { cidrs: ['10.0.0.0/8'] },
  rules: ports.map((port) => ({
    id: `p${port}`,
    action: 'allow',
    match: { dst_cidrs: ['192.0.2.0/24'], proto: 'tcp', dst_ports: [port] },
  })),
});
const policy = (...groups: readonly unknown[]) => ({ mode: 'enforce', policy: { source_groups: groups } });
const [WEB, WITH_SSH] = [policy(group('lan', 80)), policy(group('lan', 80, 22))];

const noSsh: Assertion = { id: 'no-ssh', never: { to: ['192.0.2.0/24'], ports: [22] } };
const web: Assertion = { id: 'web', always: { from: ['10.0.0.0/8'], to: ['192.0.2.0/24'], ports: [80] } };

type Node = Running & { readonly id: string };

/** A node whose policy `Edge` allows port 80, with assertions. */
async function withAssertions(assertions: readonly Assertion[], first: unknown = WEB, options = {}): Promise<Node> {
  const running = await startSystem(options);
  await running.until('policy_ready', 'never_activated');
  const outcome = await running.system.policies.write(write({ name: 'Edge', ...(first as object) }));
  await running.store.assertions.write('ann', undefined, () => assertions);
  running.datapath.log.length = 0;
  return { ...running, id: written(outcome).stored.record.id };
}
const put = ({ system, id }: Node, body: unknown, more: Partial<PolicyWrite> = {}) =>
  system.policies.write(write(body, { target: { by: 'id', id }, ...more }));
const without = { body: new Uint8Array() };

describe('the check of the assertions before the commit', () => {
  test('a write that breaks an assertion is refused with its flows, and changes nothing', async () => {
    const node = await withAssertions([noSsh, web]);
    const refusal = refused(await put(node, WITH_SSH));
    expect(refusal).toMatchObject({
      code: 'assertion_failed',
      detail: 'the write would break the assertion no-ssh: lan/p22 passes 10.0.0.0/8 → 192.0.2.0/24 tcp/22',
      assertions: [
        {
          id: 'no-ssh',
          result: 'broken',
          before: 'holds',
          effect: 'refuses',
          regions: [
            {
              decider: { source_group: 'lan', rule: 'p22' },
              example: { src: '10.0.0.1', dst: '192.0.2.1', proto: 6, dst_port: 22 },
            },
          ],
        },
      ],
    });
    expect(node.datapath.log).toEqual([]);
    expect(node.system.policies.generation()).toBe(1);
    expect((await node.store.policies.active())?.record.revision).toBe(1);
    // The next write is prepared as if the refused one had not been there.
    expect(told(await put(node, policy(group('lan', 80, 81))))).toEqual([]);
  });

  const edge = (node: Node, more: Partial<PolicyWrite>) =>
    node.system.policies.write(write(null, { target: { by: 'id', id: node.id }, ...without, ...more }));

  test.each<[kind: string, first: unknown, act: (node: Node) => Promise<PolicyOutcome>]>([
    ['a write of one group', WEB, (node) => put(node, group('lan', 80, 22), { sourceGroup: 'lan' })],
    ['a removal of one group', WEB, (node) => edge(node, { operation: 'delete', sourceGroup: 'lan' })],
    [
      'a write of the active policy',
      WEB,
      (node) => put(node, { source_groups: [] }, { target: { by: 'active' }, form: 'singleton' }),
    ],
    ['a write that disables the policy', WEB, (node) => put(node, { ...WEB, mode: 'disabled' })],
    ['a deletion', WEB, (node) => node.system.policies.write(removal(node.id))],
    ['a write that takes the activity from another policy', WEB, (node) => node.system.policies.write(write(WITH_SSH))],
    [
      'an activation',
      WEB,
      async (node) => {
        const other = written(await node.system.policies.write(write(WITH_SSH, { activate: false })));
        return edge(node, { operation: 'activate', target: { by: 'id', id: other.stored.record.id } });
      },
    ],
    [
      'a write with a time for its confirmation',
      WEB,
      (node) => put(node, WITH_SSH, { terms: { kind: 'confirm', withinMs: 60_000 } }),
    ],
    ['a write of the policy file', WEB, (node) => put(node, WITH_SSH, { fromFile: true })],
  ])('%s is refused if it breaks an assertion', async (_, first, act) => {
    const node = await withAssertions([noSsh, web], first);
    expect(refused(await act(node)).code).toBe('assertion_failed');
    expect(node.system.policies.generation()).toBe(1);
  });

  test('a rollback is refused if it breaks an assertion', async () => {
    const node = await withAssertions([], WITH_SSH);
    written(await put(node, WEB));
    await node.store.assertions.write('ann', undefined, () => [noSsh]);
    expect(refused(await edge(node, { operation: 'rollback', revision: 1 })).code).toBe('assertion_failed');
  });

  test('a policy write that does not change the policy in force is accepted without a check of the assertions', async () => {
    const node = await withAssertions([noSsh]);
    expect(told(await node.system.policies.write(write(WITH_SSH, { activate: false })))).toEqual([]);
  });

  test('the revert of a pending change is not checked', async () => {
    const node = await withAssertions([], WITH_SSH);
    written(await put(node, WEB, { terms: { kind: 'confirm', withinMs: 60_000 } }));
    await node.store.assertions.write('ann', undefined, () => [noSsh]);
    const end = { outcome: 'revert' as const, generation: undefined, comment: undefined, author: 'ann', dryRun: false };
    expect(await node.system.pendingChange.end(end)).toMatchObject({ kind: 'ended' });
    await expect.poll(async () => (await node.store.policies.active())?.record.revision).toBe(3);
    expect(node.system.policies.generation()).toBe(3);
  });

  test('an assertion that was broken before a policy write causes only a warning, so that a repair is not refused', async () => {
    const node = await withAssertions(
      [noSsh, { id: 'no-telnet', never: { ports: [23] } }],
      policy(group('lan', 80, 22, 23)),
    );
    const half = await put(node, policy(group('lan', 80, 22)));
    expect(told(half)).toEqual([]);
    const wider = await put(
      node,
      policy({ ...group('lan', 80, 22), sources: { cidrs: ['10.0.0.0/8', '172.16.0.0/12'] } }),
    );
    expect(told(wider)).toEqual([
      {
        pointer: '',
        code: 'assertion_failed',
        message:
          'The assertion no-ssh is broken: lan/p22 passes 10.0.0.0/8, 172.16.0.0/12 → 192.0.2.0/24 tcp/22. It was broken before the write.',
      },
    ]);
    expect(told(await put(node, WEB))).toEqual([]);
    expect(refused(await put(node, WITH_SSH)).code).toBe('assertion_failed');
  });

  test('an assertion with `on_failure: warn` causes only a warning', async () => {
    const node = await withAssertions([{ ...noSsh, on_failure: 'warn' }]);
    expect(told(await put(node, WITH_SSH))).toEqual([
      expect.objectContaining({ message: expect.stringMatching(/ It has `on_failure: warn`\.$/) as string }),
    ]);
  });

  test('a dry run names the assertions that the write would break, and is not refused', async () => {
    const node = await withAssertions([noSsh, { ...web, on_failure: 'warn' }]);
    const outcome = await put(node, policy(group('lan', 22)), { dryRun: true });
    expect(outcome).toMatchObject({
      kind: 'checked',
      assertions: [
        { id: 'no-ssh', effect: 'refuses' },
        { id: 'web', effect: 'warns' },
      ],
    });
    const overridden = await put(node, WITH_SSH, { dryRun: true, overrides: ['no-ssh'] });
    expect(overridden).toMatchObject({ assertions: [{ id: 'no-ssh', effect: 'overridden' }] });
  });

  test('a dry run that contains its own assertions is checked with these', async () => {
    const node = await withAssertions([noSsh]);
    const outcome = await put(node, policy(group('lan')), { dryRun: true, assertions: [web] });
    expect(outcome).toMatchObject({ kind: 'checked', assertions: [{ id: 'web', effect: 'refuses' }] });
  });
});

describe('an override', () => {
  test('an override of an assertion allows the policy write, adds a warning, and is recorded in the history', async () => {
    const node = await withAssertions([noSsh, web]);
    const outcome = written(await put(node, WITH_SSH, { overrides: ['no-ssh', 'web'] }));
    expect(told(outcome)).toEqual([
      expect.objectContaining({
        message: expect.stringMatching(/^The assertion no-ssh is broken: .* The write overrides it\.$/) as string,
      }),
    ]);
    const [latest] = await node.store.policies.history(node.id);
    expect(latest?.facts.overrides).toEqual(['no-ssh']);
  });

  test('an override of an activation and of a deletion is recorded with the event', async () => {
    const node = await withAssertions([noSsh]);
    const other = written(await node.system.policies.write(write(WITH_SSH, { activate: false }))).stored.record.id;
    const target = { by: 'id', id: other } as const;
    const named = { overrides: ['no-ssh'], ...without };
    written(await node.system.policies.write(write(null, { operation: 'activate', target, ...named })));
    expect((await node.store.policies.history(other))[0]?.facts.activated?.overrides).toEqual(['no-ssh']);
    await node.store.assertions.write('ann', undefined, () => [
      web,
      { id: 'ssh', always: { from: ['10.0.0.1'], to: ['192.0.2.1'], ports: [22] } },
    ]);
    expect(refused(await node.system.policies.write(removal(other))).code).toBe('assertion_failed');
    expect((await node.system.policies.write(removal(other, { overrides: ['ssh', 'web'] }))).kind).toBe('deleted');
    expect((await node.store.policies.history(other))[0]?.facts.removed?.overrides).toEqual(['web', 'ssh']);
  });

  test('an override does not let other assertions pass', async () => {
    const node = await withAssertions([noSsh, web]);
    const refusal = refused(await put(node, policy(group('lan', 22)), { overrides: ['web'] }));
    expect(refusal.assertions?.map(({ id }) => id)).toEqual(['no-ssh']);
  });

  test('an override that names no assertion is refused', async () => {
    const node = await withAssertions([noSsh]);
    expect(refused(await put(node, WEB, { overrides: ['no-shh', 'no-ssh'] }))).toMatchObject({
      code: 'invalid_query',
      problems: [{ pointer: '?override', code: 'invalid_parameter', message: 'There is no assertion no-shh.' }],
    });
  });
});

describe('a check that cannot be completed', () => {
  /** A thread for writes whose checks have no time. */
  const withoutTime = (): PolicyThread => {
    const thread = threadHere();
    return {
      ...thread,
      perform: (work, options) =>
        thread.perform(work.kind === 'check_assertions' ? { ...work, budgetMs: 0 } : work, options),
    };
  };

  test('a policy write whose check of assertions exceeds the time limit is refused, and an override allows it', async () => {
    const node = await withAssertions([noSsh], WEB, { writing: withoutTime() });
    expect(refused(await put(node, WITH_SSH))).toMatchObject({
      code: 'assertion_failed',
      detail: 'the assertion no-ssh could not be checked: the assertion could not be checked in time',
      assertions: [{ id: 'no-ssh', result: 'unknown', before: null, effect: 'refuses' }],
    });
    expect(told(await put(node, WITH_SSH, { overrides: ['no-ssh'] }))).toEqual([
      expect.objectContaining({
        message: expect.stringMatching(/could not be checked: .* The write overrides it\.$/) as string,
      }),
    ]);
  });

  test('if this build cannot read the list of assertions, each write that changes the policy in force is refused', async () => {
    const kv = createMemoryStore();
    const store = await assembleStore(
      kv,
      noCopy,
      sealWith(async () => Buffer.alloc(32)),
      () => {},
      null,
    );
    const node = await withAssertions([noSsh], WEB, { store });
    const list = { revision: 7, updated_at: '2026-01-01T00:00:00.000Z', updated_by: 'newer' };
    await kv.put('setting/assertions', encodeJson({ ...list, assertions: [{ id: 'x', sometimes: {} }] }), {
      sync: true,
    });
    expect(refused(await put(node, WEB))).toMatchObject({
      code: 'assertion_failed',
      detail: expect.stringContaining('the stored list of assertions cannot be read') as string,
    });
    const stored = await node.system.policies.write(write(WITH_SSH, { activate: false }));
    expect(stored.kind).toBe('written');
    expect(await put(node, WEB, { dryRun: true })).toMatchObject({
      kind: 'checked',
      warnings: [{ code: 'assertion_failed' }],
    });
    await node.store.assertions.write('ann', undefined, () => []);
    expect(written(await put(node, WITH_SSH)).generation).toBe(2);
  });
});

describe('`opens_nothing_since`', () => {
  const since = (revision: number, name?: string): Assertion => ({
    id: 'ratchet',
    opens_nothing_since: name === undefined ? { revision } : { revision, policy: name },
  });

  test.each([
    ['the policy in force', since(1)],
    ['a policy that it names', since(1, 'edge')],
  ])('`opens_nothing_since` compares with a revision of %s', async (_, assertion) => {
    const node = await withAssertions([assertion], policy(group('lan', 80, 443)));
    expect(told(await put(node, WEB))).toEqual([]);
    expect(told(await put(node, policy(group('lan', 80, 443))))).toEqual([]);
    const refusal = refused(await put(node, policy(group('lan', 80, 443, 22))));
    expect(refusal.assertions?.[0]?.message).toMatch(/^lan\/p22 passes .* tcp\/22; revision 1 of .* denied them$/);
  });

  test('an assertion that compares with a revision (`opens_nothing_since`) causes only a warning if the history lacks the revision', async () => {
    const node = await withAssertions([since(9)]);
    expect(told(await put(node, WITH_SSH))).toEqual([
      expect.objectContaining({
        message:
          'The assertion ratchet could not be checked: revision 9 of the policy in force is not in the history. It could not be checked before the write either.',
      }),
    ]);
  });
});

describe('the policies in the cache of the policy thread', () => {
  test('the check of assertions finds the earlier policy in the cache after a large write, and reads it from the store after a restart', async () => {
    const texts: (readonly boolean[])[] = [];
    const thread = threadHere();
    const writing: PolicyThread = {
      ...thread,
      perform: (work, options) => {
        if (work.kind === 'check_assertions') texts.push([work.before, work.after].map((of) => of?.text != null));
        return thread.perform(work, options);
      },
    };
    // More than 4 MiB, so that the cache keeps one policy only.
    const large = (...ports: readonly number[]) =>
      policy(group('lan', ...ports), {
        ...group('more', 443),
        sources: { ips: Array.from({ length: 300_000 }, (_, n) => `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`) },
      });
    const node = await withAssertions([noSsh], large(80), { writing, activationTimeoutMs: 60_000 });
    expect(told(await put(node, large(80, 81)))).toEqual([]);
    expect(refused(await put(node, large(80, 22))).code).toBe('assertion_failed');
    expect(texts).toEqual([
      [false, false],
      [false, false],
    ]);
    texts.length = 0;
    await node.system.shutdown();
    const again = await startSystem({ store: node.store, writing, activationTimeoutMs: 60_000 });
    await again.until('policy_ready', 'active');
    await thread.perform({
      kind: 'prepare',
      text: { body: Buffer.from(JSON.stringify(large(1))), form: 'envelope', recordMode: 'enforce' },
      surroundings: { fallback: 'deny', dns: false, servicePlane: false, policesNode: false, ipv6: false },
      integrations: [],
      compile: false,
      key: 'other',
    });
    expect(refused(await put({ ...again, id: node.id }, WITH_SSH)).code).toBe('assertion_failed');
    expect(texts).toEqual([
      [false, false],
      [true, true],
    ]);
  }, 60_000);
});

test('a policy write is refused at its commit if the stored list of assertions has changed since the check', async () => {
  const node = await withAssertions([]);
  const commit = node.store.policies.commit.bind(node.store.policies);
  node.store.policies.commit = async (change) => {
    await node.store.assertions.write('bob', undefined, () => [noSsh]);
    return commit(change);
  };
  expect(refused(await put(node, WITH_SSH))).toMatchObject({
    code: 'write_conflict',
    detail: 'commit the policy: the list of assertions was changed meanwhile; nothing was changed',
  });
  expect(node.system.policies.generation()).toBe(1);
});
