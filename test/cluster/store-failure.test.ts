import { describe, expect, test } from 'vitest';
import { EtcdError } from '#cluster/etcd/etcd-error.js';
import { failureBeforeCommit, storeFailure } from '#cluster/store-failure.js';
import { StoreError } from '#store/store-error.js';

const lost = new EtcdError('outcome_unknown', 'write etcd at m1: Cancelled on client');
const codeOf = (failure: unknown) => (failure instanceof StoreError ? failure.code : failure);

describe('a lost response of etcd', () => {
  test('a lost response of etcd makes the outcome of a commit unknown', () => {
    expect(codeOf(storeFailure('commit the policy', lost))).toBe('outcome_unknown');
  });

  test('a lost response of etcd before the commit makes the write fail without a change of the policy', () => {
    const failure = failureBeforeCommit('wait for the write lock', lost);
    expect(failure).toEqual(
      new StoreError(
        'store_unavailable',
        'wait for the write lock: write etcd at m1: Cancelled on client; nothing was changed',
        { cause: lost },
      ),
    );
    expect(codeOf(failure)).toBe('store_unavailable');
  });
});

describe('failureBeforeCommit', () => {
  test('`failureBeforeCommit` converts an error of etcd into an error of the store, and returns any other error unchanged', () => {
    expect(codeOf(failureBeforeCommit('propose', new EtcdError('no_space', 'full')))).toBe('store_full');
    const failure = new Error('other');
    expect(failureBeforeCommit('propose', failure)).toBe(failure);
  });
});
