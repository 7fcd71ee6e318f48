import { afterEach, describe, expect, test } from 'vitest';
import type { PolicyWrite } from '#contracts/policy/policy-write.js';
import {
  codesOf,
  envelope,
  INTEGRATION,
  type Running,
  removal,
  SELECTING,
  singleton,
  startSystem,
  stopSystems,
  textOf,
  write,
  written,
} from '../../actors/running-system.js';

afterEach(stopSystems);

const rollback = (id: string, revision: number, more: Partial<PolicyWrite> = {}) =>
  write(null, { operation: 'rollback', target: { by: 'id', id }, revision, body: new Uint8Array(), ...more });
const group = (id: string, port: number) => ({
  id,
  sources: { cidrs: ['10.0.0.0/8'] },
  rules: [{ id: 'web', action: 'allow', match: { proto: 'tcp', dst_ports: [port] } }],
});
const counts = (added: number, changed: number, removed: number) => ({ added, changed, removed });
const size = (groups: ReturnType<typeof counts>, rules = groups, other = false) => ({ groups, rules, other });

/** A node whose policy `Edge` has three revisions: two groups, then a changed group, then none. */
async function withRevisions(): Promise<Running & { id: string }> {
  const running = await startSystem();
  await running.until('policy_ready', 'never_activated');
  const { policies } = running.system;
  const body = { name: 'Edge', mode: 'audit', policy: { source_groups: [group('a', 80), group('b', 80)] } };
  const { id } = written(await policies.write(write(body, { comment: 'first' }))).stored.record;
  const target = { by: 'id', id } as const;
  written(await policies.write(write(group('a', 81), { target, sourceGroup: 'a', author: 'bob' })));
  written(await policies.write(write({ mode: 'enforce', policy: {} }, { target })));
  running.datapath.log.length = 0;
  return { ...running, id };
}

const factsOf = async ({ store }: Running, id: string) =>
  (await store.policies.history(id)).map(({ revision, facts: { bytes: _, ...facts } }) => [revision, facts]);

describe('the history of policy writes', () => {
  test('the history of policy writes has kind, comment, generation and size of each write', async () => {
    const running = await withRevisions();
    expect(await factsOf(running, running.id)).toEqual([
      [3, { via: 'write', generation: 3, size: size(counts(0, 0, 2), counts(0, 0, 2), true) }],
      [2, { via: 'group_write', source_group: 'a', generation: 2, size: size(counts(0, 1, 0)) }],
      [1, { via: 'write', comment: 'first', generation: 1, size: size(counts(2, 0, 0)) }],
    ]);
  });

  test.each([
    ['a write of the policy file', singleton('lan', { fromFile: true }), { via: 'file' }],
    ['a write that is not activated', singleton('lan', { target: { by: 'name', name: 'x' }, activate: false }), {}],
  ])('the history of policy writes has %s', async (_, made, facts) => {
    const running = await startSystem();
    await running.until('policy_ready', 'never_activated');
    const { id } = written(await running.system.policies.write(made)).stored.record;
    const generation = made.activate ? { generation: 1 } : {};
    expect(await factsOf(running, id)).toEqual([
      [1, { via: 'write', ...generation, size: expect.anything(), ...facts }],
    ]);
  });

  test('the history of policy writes has the size of a write although the policy thread has no copy of the revision before, for example after a restart', async () => {
    const running = await withRevisions();
    await running.system.shutdown();
    const again = await startSystem({ store: running.store });
    await again.until('policy_ready', 'active');
    for (let n = 0; n < 3; n++)
      written(await again.system.policies.write(write(envelope(`other ${n}`, { name: `other ${n}` }))));
    const target = { by: 'id', id: running.id } as const;
    const { stored } = written(
      await again.system.policies.write(
        write({ mode: 'enforce', policy: { source_groups: [group('c', 1)] } }, { target }),
      ),
    );
    expect(stored.record.revision).toBe(4);
    expect((await factsOf(again, running.id))[0]).toEqual([
      4,
      { via: 'write', generation: 7, size: size(counts(1, 0, 0)) },
    ]);
  });

  test('the history of policy writes shows a change of the name as a change other than of groups and rules', async () => {
    const running = await withRevisions();
    const target = { by: 'id', id: running.id } as const;
    written(await running.system.policies.write(write({ name: 'Rim', mode: 'enforce', policy: {} }, { target })));
    expect((await factsOf(running, running.id))[0]).toMatchObject([
      4,
      { size: size(counts(0, 0, 0), counts(0, 0, 0), true) },
    ]);
  });

  test('the history of policy writes has activations and the removal of a policy, with author, time and comment', async () => {
    const running = await withRevisions();
    const { policies } = running.system;
    written(await policies.write(write(envelope('second', { name: 'other' }))));
    const target = { by: 'id', id: running.id } as const;
    const by = { author: 'bob', body: new Uint8Array() };
    written(await policies.write(write(null, { operation: 'activate', target, comment: 'back', ...by })));
    await policies.write(removal(running.id, { author: 'ann', comment: 'gone' }));
    expect((await factsOf(running, running.id))[0]).toEqual([
      3,
      expect.objectContaining({
        generation: 3,
        activated: { by: 'bob', at: expect.any(String), comment: 'back', generation: 5 },
        removed: { by: 'ann', at: expect.any(String), comment: 'gone', generation: 6 },
      }),
    ]);
  });
});

describe('a rollback', () => {
  test('a rollback writes form, mode and text of the earlier revision as a new revision, proves it, and puts it in force; the policy keeps its name', async () => {
    const running = await withRevisions();
    const { system, datapath, store, id } = running;
    const outcome = written(await system.policies.write(rollback(id, 2, { author: 'ann', comment: 'DNS was gone' })));
    expect(datapath.log).toEqual(['stage 4', 'prove 4', 'flip 4']);
    expect(outcome).toMatchObject({ created: false, generation: 4, proof: { complete: true } });
    const wanted = { source_groups: [group('a', 81), group('b', 80)] };
    expect(textOf(outcome.stored.body)).toEqual(wanted);
    const active = await store.policies.active();
    expect(active?.record).toMatchObject({ id, name: 'Edge', mode: 'audit', revision: 4, updated_by: 'ann' });
    expect(active?.record).toEqual(outcome.stored.record);
    expect(textOf(active?.body ?? new Uint8Array())).toEqual(wanted);
    expect((await factsOf(running, id))[0]).toEqual([
      4,
      {
        via: 'rollback',
        of_revision: 2,
        comment: 'DNS was gone',
        generation: 4,
        size: size(counts(2, 0, 0), counts(2, 0, 0), true),
      },
    ]);
    await system.shutdown();
    const again = await startSystem({ store });
    await again.until('policy_ready', 'active');
    expect(again.datapath.inForce).toBe(4);
  });

  test('a dry run of a rollback proves the earlier document, and changes neither datapath nor store', async () => {
    const { system, datapath, store, id } = await withRevisions();
    expect(await system.policies.write(rollback(id, 1, { dryRun: true }))).toMatchObject({
      kind: 'checked',
      stored: { record: { revision: 4, mode: 'audit' } },
      proof: { complete: true },
    });
    expect([datapath.log, datapath.inForce]).toEqual([['stage 4', 'prove 4', 'unstage'], 3]);
    expect((await store.policies.history(id)).length).toBe(3);
  });

  test('a rollback can be an unconfirmed change; its revert restores the policy before the rollback', async () => {
    const running = await withRevisions();
    const terms = { kind: 'confirm', withinMs: 60_000 } as const;
    const outcome = written(await running.system.policies.write(rollback(running.id, 1, { terms })));
    expect(codesOf(outcome)).toContain('unconfirmed');
    const change = await running.store.policies.headCommit();
    const end = { change, reason: '', at: new Date().toISOString(), by: 'ann' };
    await running.store.policies.settle({ ...end, outcome: 'revert', because: 'asked' });
    expect((await factsOf(running, running.id))[0]).toEqual([
      5,
      { via: 'revert', of_revision: 3, generation: 5, size: size(counts(0, 0, 2), counts(0, 0, 2), true) },
    ]);
  });

  test('a rollback of a policy that is not active activates it, unless the request has `activate: false`', async () => {
    const { system, store, id } = await withRevisions();
    written(await system.policies.write(write(envelope('second', { name: 'other' }))));
    const stored = written(await system.policies.write(rollback(id, 1, { activate: false })));
    expect(stored.stored.record).toMatchObject({ revision: 4, active: false });
    expect(codesOf(await system.policies.write(rollback(id, 1)))).toContain('activity_taken');
    expect((await store.policies.active())?.record).toMatchObject({ id, revision: 5 });
  });

  test.each([
    ['with its last name', 'other', 'Edge'],
    ['without a name if another policy has it', 'Edge', null],
  ])('a rollback of a removed policy creates it again as the next revision, %s', async (_, taken, name) => {
    const running = await withRevisions();
    const { system, store, id } = running;
    await system.policies.write(removal(id));
    written(await system.policies.write(write(envelope('second', { name: taken }))));
    expect(codesOf(await system.policies.write(rollback('nowhere', 1)))).toEqual(['not_found']);
    expect(codesOf(await system.policies.write(rollback(id, 2, { ifMatch: '*' })))).toEqual(['precondition_failed']);
    const outcome = written(await system.policies.write(rollback(id, 2)));
    expect(outcome.created).toBe(true);
    expect((await store.policies.active())?.record).toMatchObject({ id, name, mode: 'audit', revision: 4 });
    expect((await store.policies.history(id)).map(({ revision }) => revision)).toEqual([4, 3, 2, 1]);
    const target = { by: 'id', id } as const;
    written(await system.policies.write(write(group('a', 82), { target, sourceGroup: 'a' })));
    expect((await factsOf(running, id))[0]).toMatchObject([5, { via: 'group_write', size: size(counts(0, 1, 0)) }]);
  });

  test.each([
    ['an unknown revision', 9, {}, 'not_found', 'the history of the policy has no revision 9'],
    ['an ETag that does not match', 1, { ifMatch: '"x.1"' }, 'precondition_failed', 'the ETag is'],
    ['`activate: false` for the active policy', 1, { activate: false }, 'would_deactivate', 'the policy is active'],
  ])('a rollback is refused for %s', async (_, revision, more, code, detail) => {
    const { system, datapath, store, id } = await withRevisions();
    const outcome = await system.policies.write(rollback(id, revision, more));
    expect(outcome).toMatchObject({ kind: 'refused', code, detail: expect.stringContaining(detail) });
    expect(datapath.log).toEqual([]);
    expect((await store.policies.history(id)).length).toBe(3);
  });

  test('a rollback is refused with the problems of the earlier document if it is no longer valid', async () => {
    const { system, store } = await withRevisions();
    await store.integrations.put(INTEGRATION, 'bob');
    const { id } = written(await system.policies.write(write(SELECTING, { activate: false }))).stored.record;
    const target = { by: 'id', id } as const;
    written(await system.policies.write(write({ mode: 'enforce', policy: {} }, { target, activate: false })));
    await store.integrations.remove('prod');
    expect(await system.policies.write(rollback(id, 1))).toMatchObject({
      code: 'cannot_activate',
      problems: [{ pointer: expect.stringMatching(/^\/policy\/source_groups\/0\//), code: 'unknown_integration' }],
    });
  });
});
