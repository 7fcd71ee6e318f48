import { describe, expect, test } from 'vitest';
import type { KeyChange, KeyValue } from '#cluster/etcd/etcd-types.js';
import { encodeJson } from '#store/records/json-value.js';
import { StepTracker } from './write-steps.js';

function entry(name: string, value: unknown, revisions: readonly [bigint, bigint]): KeyValue {
  const [createRevision, modRevision] = revisions;
  return { key: `/weir/${name}`, value: encodeJson(value), createRevision, modRevision, lease: 0n };
}
const put = (name: string, value: unknown, created: bigint, modified = created): KeyChange => ({
  type: 'put',
  entry: entry(name, value, [created, modified]),
});
const removed = (name: string, modRevision: bigint): KeyChange => ({
  type: 'delete',
  key: `/weir/${name}`,
  modRevision,
});

const lock = (id: string, node: string, created: bigint): KeyChange => put(`shared/turn/${id}`, { node }, created);
const proposal = (id: string, node: string, created: bigint, modified: bigint): KeyChange =>
  put(`shared/turn/${id}`, { node, proposal: { generation: 3, record: null, bodySha256: '' } }, created, modified);
const vote = (staged: boolean, revision: bigint): KeyChange =>
  put('vote/n1/t1/n2', { node: 'n2', staged, refusal: null }, revision);
const member = (id: string, generation: number, modified: bigint): KeyChange => {
  const since = '2026-01-01T00:00:00.000Z';
  const value = { id, identity: id, boot: 'b', address: '10.0.0.1:7443', version: '0.1.0', since, generation };
  return put(`member/${id}`, value, 2n, modified);
};
const commit = (id: string, generation: number, revision: bigint): KeyChange[] => [
  put('shared/head', { generation, active: 'p', ever_activated: true }, 1n, revision),
  removed(`shared/turn/${id}`, revision),
];

describe('StepTracker', () => {
  test('`StepTracker` returns each step of a policy write in the cluster, from the write lock to the enforcement', () => {
    const tracker = new StepTracker([]);
    expect(tracker.take([lock('t1', 'n1', 5n)])).toEqual([
      { step: 'lock_taken', node: 'n1', lock: 't1', generation: null },
    ]);
    expect(tracker.take([proposal('t1', 'n1', 5n, 6n)])).toEqual([
      { step: 'proposed', node: 'n1', lock: 't1', generation: null },
    ]);
    expect(tracker.take([vote(true, 7n)])).toEqual([{ step: 'voted', node: 'n1', lock: 't1', generation: null }]);
    expect(tracker.take(commit('t1', 3, 8n))).toEqual([{ step: 'committed', node: 'n1', lock: 't1', generation: 3 }]);
    expect(tracker.take([member('n1', 3, 9n)])).toEqual([{ step: 'flipped', node: 'n1', lock: 't1', generation: 3 }]);
  });

  test('`StepTracker` (steps of policy writes in a cluster) assigns later steps to the next writer after the lock is released, also within one batch of changes', () => {
    const tracker = new StepTracker([entry('shared/turn/t1', { node: 'n1' }, [5n, 5n])]);
    expect(tracker.take([lock('t2', 'n2', 6n), ...commit('t1', 3, 7n), proposal('t2', 'n2', 6n, 8n)])).toEqual([
      { step: 'committed', node: 'n1', lock: 't1', generation: 3 },
      { step: 'lock_taken', node: 'n2', lock: 't2', generation: null },
      { step: 'proposed', node: 'n2', lock: 't2', generation: null },
    ]);
  });

  test('`StepTracker` (steps of policy writes in a cluster) returns no commit if the lock is released without a commit', () => {
    const tracker = new StepTracker([]);
    tracker.take([lock('t1', 'n1', 5n)]);
    expect(tracker.take([removed('shared/turn/t1', 6n)])).toEqual([]);
  });

  test('`StepTracker` (steps of policy writes in a cluster) ignores reports without a vote, the enforcement of other nodes or policy generations, and keys that are not part of a write', () => {
    const tracker = new StepTracker([]);
    tracker.take([lock('t1', 'n1', 5n), ...commit('t1', 3, 6n)]);
    const changes = [vote(false, 7n), member('n2', 3, 8n), member('n1', 2, 9n), put('shared/setting/mode', {}, 10n)];
    expect(tracker.take(changes)).toEqual([]);
  });
});
