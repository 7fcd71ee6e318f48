import { join } from 'node:path';
import fc from 'fast-check';
import { firstValueFrom } from 'rxjs';
import { describe, expect, test } from 'vitest';
import type { ChangeEnd, PendingWrite } from '#contracts/policy/pending-change.js';
import { type LastGoodFile, lastGoodFile } from '#store/policies/last-good.js';
import { enforcedAt, pendingAfter, reservedGeneration, settled } from '#store/policies/pending-change.js';
import type { PolicyHead, PolicyRow } from '#store/policies/policy-row.js';
import { loadPolicyStore } from '#store/policies/policy-store.js';
import { StoreError } from '#store/store-error.js';
import type { PolicyStore } from '#store/store-types.js';
import { createMemoryStore } from '#test/store/memory-store.js';
import { noCopy, storedPolicy } from './stored-policy.js';
import { temporaryFolder } from './temporary-folder.js';

const AT = '2026-02-01T08:30:00.000Z';
const CONFIRM: PendingWrite = { terms: { kind: 'confirm', within_ms: 60_000 }, by: 'admin', at: AT };
const end = (change: string, outcome: ChangeEnd['outcome']): ChangeEnd => ({
  change,
  outcome,
  reason: 'it was not confirmed within 60 s',
  at: AT,
  by: 'weir',
  because: 'elapsed',
});
const open = (kv = createMemoryStore(), copy: LastGoodFile = noCopy) => loadPolicyStore(kv, copy, () => {});
const text = (policy: Awaited<ReturnType<PolicyStore['active']>>) => policy && Buffer.from(policy.body).toString();
const pendingOf = async (policies: PolicyStore) => (await firstValueFrom(policies.pending))?.id ?? '';
async function stateOf(policies: PolicyStore) {
  const { stored, generation } = await policies.toEnforce();
  const active = await policies.active();
  return [await policies.generation(), text(active), active?.record.revision, generation, text(stored)];
}

/** A store whose policy `a` is at generation 1, with a change to generation 2 that must be confirmed. */
async function changed(kv = createMemoryStore(), copy: LastGoodFile = noCopy) {
  const policies = await open(kv, copy);
  await policies.commit({ put: storedPolicy({ id: 'a', name: 'a', revision: 1 }, '{"n":1}'), generation: 1 });
  const put = storedPolicy({ id: 'a', name: 'a', revision: 2 }, '{"n":2}');
  await policies.commit({ put, pending: CONFIRM, generation: 2 });
  return { policies, change: await pendingOf(policies), kv };
}

describe('a policy change that must be confirmed', () => {
  test('a policy change that must be confirmed is in force, and is still pending after the store is opened again', async () => {
    const { policies, change, kv } = await changed();
    expect(await stateOf(policies)).toEqual([2, '{"n":2}', 2, 2, '{"n":2}']);
    const again = await open(kv);
    expect(await firstValueFrom(again.pending)).toEqual({
      id: change,
      generation: 2,
      before: { generation: 1 },
      ...CONFIRM,
    });
    expect(await again.reservedGeneration()).toBe(4);
  });

  test('an unconfirmed policy change is reverted, also after a restart, if the disk stored the revert although the write reported a failure', async () => {
    const { policies, change, kv } = await changed();
    const intact = { ...kv };
    kv.batch = async (operations, options) => {
      await intact.batch(operations, options);
      if (operations.length > 0) throw new StoreError('store_unavailable', 'fdatasync: Input/output error');
    };
    await policies.settle(end(change, 'revert'));
    for (const store of [policies, await open(kv)])
      expect(await stateOf(store)).toEqual([3, '{"n":1}', 3, 3, '{"n":1}']);
  });

  test('after a revert, the last-good copy of the active policy (file beside the database) has the text of the restored policy, even if an earlier write of the same revision failed', async () => {
    const copy = lastGoodFile(join(temporaryFolder(), 'last-good.policy'));
    const kv = createMemoryStore();
    const { policies, change } = await changed(kv, copy);
    const intact = { ...kv };
    kv.batch = () => Promise.reject(new StoreError('store_no_space', 'write: No space left on device'));
    const put = storedPolicy({ id: 'a', name: 'a', revision: 3 }, '{"n":3}');
    await expect(policies.commit({ put, generation: 3 })).rejects.toMatchObject({ code: 'store_no_space' });
    Object.assign(kv, intact);
    await policies.settle(end(change, 'revert'));
    await expect.poll(async () => (await copy.read())?.head.generation).toBe(3);
    const body = await (await copy.read())?.active?.body();
    expect(body && Buffer.from(body).toString()).toBe('{"n":1}');
  });

  test('the revert of an unconfirmed policy change creates a new revision, and uses the generation number that was reserved for the revert', async () => {
    const { policies, change } = await changed();
    const followed: number[] = [];
    policies.followed.subscribe((generation) => followed.push(generation));
    await policies.settle(end(change, 'revert'));
    expect(await stateOf(policies)).toEqual([3, '{"n":1}', 3, 3, '{"n":1}']);
    expect(followed).toEqual([3]);
    expect(policies.reverted).toEqual({ generation: 2, at: AT, reason: 'it was not confirmed within 60 s' });
    expect((await policies.history('a')).map(({ revision, updated_by }) => [revision, updated_by])).toEqual([
      [3, 'weir'],
      [2, 'ops'],
      [1, 'ops'],
    ]);
    await policies.commit({ put: storedPolicy({ id: 'a', name: 'a', revision: 4 }, '{"n":4}'), generation: 4 });
    expect(policies.reverted).toBeNull();
  });

  test('a confirmed policy change stays in force, with a generation number above the one that was reserved for its revert', async () => {
    const { policies, change } = await changed();
    await policies.settle(end(change, 'complete'));
    expect(await stateOf(policies)).toEqual([4, '{"n":2}', 2, 4, '{"n":2}']);
    expect(await pendingOf(policies)).toBe('');
    const again = await policies.settle(end(change, 'revert')).catch(({ code }: StoreError) => code);
    expect(again).toBe('revision_conflict');
  });

  test.each(['complete', 'revert'] as const)(
    'a policy write that was prepared or planned before a pending policy change ended (by "%s") is refused',
    async (outcome) => {
      const { policies, change } = await changed();
      const put = storedPolicy({ id: 'a', name: 'a', revision: 3 }, '{"n":3}');
      const write = { put, base: await policies.headCommit(), generation: 5 };
      const planned = { put, generation: 5 };
      await policies.plan(planned);
      await policies.settle(end(change, outcome));
      const before = await stateOf(policies);
      for (const late of [write, planned])
        expect(await policies.commit(late).catch(({ code }: StoreError) => code)).toBe('revision_conflict');
      expect(await stateOf(policies)).toEqual(before);
    },
  );

  test('a node can put the policy of the time before a pending change in force again, without a change of the store', async () => {
    const { policies, change } = await changed();
    const followed: number[] = [];
    policies.followed.subscribe((generation) => followed.push(generation));
    policies.revertHere(change);
    policies.revertHere(change);
    expect(await stateOf(policies)).toEqual([2, '{"n":2}', 2, 3, '{"n":1}']);
    expect(followed).toEqual([3]);
    await policies.settle(end(change, 'complete'));
    expect(await stateOf(policies)).toEqual([4, '{"n":2}', 2, 4, '{"n":2}']);
  });

  test('a pending policy change ends with a later write, and stays pending after a write that does not change the policy in force', async () => {
    const { policies, change } = await changed();
    const other = storedPolicy({ id: 'b', name: 'b', revision: 1, active: false }, '{}');
    await policies.commit({ put: other, generation: 2 });
    expect(await pendingOf(policies)).toBe(change);
    await policies.commit({ put: storedPolicy({ id: 'a', name: 'a', revision: 3 }, '{"n":3}'), generation: 4 });
    expect(await pendingOf(policies)).toBe('');
  });

  test('several unconfirmed writes are reverted to the last confirmed policy', async () => {
    const { policies } = await changed();
    const put = storedPolicy({ id: 'a', name: 'a', revision: 3 }, '{"n":3}');
    await policies.commit({ put, pending: CONFIRM, generation: 4 });
    await policies.settle(end(await pendingOf(policies), 'revert'));
    expect(await stateOf(policies)).toEqual([5, '{"n":1}', 4, 5, '{"n":1}']);
  });

  test('a reverted removal restores the removed policy, without its name if another policy has the name', async () => {
    const policies = await open();
    await policies.commit({ put: storedPolicy({ id: 'a', name: 'a', revision: 1 }, '{"n":1}'), generation: 1 });
    await policies.commit({ remove: 'a', pending: CONFIRM, generation: 2 });
    await policies.commit({
      put: storedPolicy({ id: 'b', name: 'A', revision: 1, active: false }, '{}'),
      generation: 2,
    });
    await policies.settle(end(await pendingOf(policies), 'revert'));
    const active = await policies.active();
    expect([text(active), active?.record.name, active?.record.revision]).toEqual(['{"n":1}', null, 2]);
    expect(policies.reverted?.reason).toMatch(/; another policy has the name "a" now, so this one has none$/);
  });

  test('a reverted policy change leaves no active policy if no policy was active before', async () => {
    const policies = await open();
    const put = storedPolicy({ id: 'a', name: 'a', revision: 1 }, '{"n":1}');
    await policies.commit({ put, pending: CONFIRM, generation: 1 });
    await policies.settle(end(await pendingOf(policies), 'revert'));
    expect(await stateOf(policies)).toEqual([2, null, undefined, 2, null]);
    expect((await policies.list()).map(({ id }) => id)).toEqual(['a']);
  });
});

type State = { readonly head: PolicyHead; readonly rows: ReadonlyMap<string, PolicyRow> };
type Node = { state: State; revertedHere: string | null; enforced: number };
const NODES = ['n0', 'n1', 'n2'];

/** A model of a cluster: a list of commits, and nodes that have each seen a part of the list. */
class Model {
  state: State = { head: { generation: 0, active: null, ever_activated: false }, rows: new Map() };
  readonly nodes = NODES.map((): Node => ({ state: this.state, revertedHere: null, enforced: 0 }));
  /** The policy of each generation that a node has enforced. */
  readonly enforced = new Map<number, string>();
  #writes = 0;

  write(terms: PendingWrite['terms'] | undefined): void {
    const { head } = this.state;
    if (head.pending?.terms.kind === 'rollout' || (head.pending !== undefined && terms?.kind === 'rollout')) return;
    const generation = reservedGeneration(head) + 1;
    const next = { generation, commit: `c${this.#writes++}` };
    const pending = pendingAfter(this.state, terms && { terms, by: 'admin', at: AT }, next);
    const row = { id: 'a', revision: (this.state.rows.get('a')?.revision ?? 0) + 1, body_sha256: next.commit };
    const { pending: _, ...kept } = head;
    this.state = {
      head: { ...kept, ...next, active: 'a', ...(pending && { pending }) },
      rows: new Map([['a', row as PolicyRow]]),
    };
  }

  settle(outcome: ChangeEnd['outcome']): void {
    const { pending } = this.state.head;
    if (pending === undefined) return;
    const { head, row } = settled(this.state, end(pending.id, outcome), pending);
    this.state = { head, rows: row === null ? this.state.rows : new Map([...this.state.rows, [row.id, row]]) };
  }

  follow(index: number): void {
    const node = this.nodes[index];
    if (node !== undefined) this.#enforce(Object.assign(node, { state: this.state }), index);
  }

  /** A node reverts the pending change alone, because it has no connection to etcd. */
  revertHere(index: number): void {
    const node = this.nodes[index];
    const pending = node?.state.head.pending;
    if (node === undefined || pending === undefined) return;
    const { terms } = pending;
    if (terms.kind === 'rollout' && !terms.nodes.includes(NODES[index] ?? '')) return;
    this.#enforce(Object.assign(node, { revertedHere: pending.id }), index);
  }

  #enforce(node: Node, index: number): void {
    const { row, generation } = enforcedAt(node.state, NODES[index] ?? '', node.revertedHere);
    expect(generation).toBeGreaterThanOrEqual(node.enforced);
    node.enforced = generation;
    const policy = row?.body_sha256 ?? 'none';
    expect(this.enforced.get(generation) ?? policy).toBe(policy);
    this.enforced.set(generation, policy);
  }
}

describe('pending changes of a cluster', () => {
  test('pending changes of a cluster give each generation number one policy, and no node returns to an older number, in any order of events', () => {
    const index = fc.nat({ max: NODES.length - 1 });
    const step = fc.oneof(
      index.map((node) => (model: Model) => model.follow(node)),
      index.map((node) => (model: Model) => model.revertHere(node)),
      fc.constantFrom('complete' as const, 'revert' as const).map((outcome) => (model: Model) => model.settle(outcome)),
      fc.constant((model: Model) => model.write(undefined)),
      fc.constant((model: Model) => model.write(CONFIRM.terms)),
      fc
        .subarray(NODES, { minLength: 1, maxLength: 2 })
        .map((nodes) => (model: Model) => model.write({ kind: 'rollout', share: 10, hold_ms: 60_000, nodes })),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        const model = new Model();
        for (const act of steps) act(model);
        for (const node of NODES.keys()) model.follow(node);
        const enforced = new Set(model.nodes.map((node) => node.enforced));
        if (model.state.head.pending === undefined) expect(enforced.size).toBe(1);
      }),
      { numRuns: 5_000 },
    );
  });
});
