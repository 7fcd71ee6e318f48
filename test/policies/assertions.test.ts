import { describe, expect, test } from 'vitest';
import type { Assertion } from '#contracts/analysis/assertion.js';
import { assertionsOver } from '#policies/assertions.js';
import { explainLane } from '#policies/explain.js';
import type { PolicyThread } from '#policies/thread/policy-thread.js';
import { StoreError } from '#store/store-error.js';
import { openMemoryStore } from '#test/store/memory-store.js';
import { storedPolicy } from '#test/store/stored-policy.js';
import { threadHere } from '../actors/running-system.js';

const noSsh: Assertion = { id: 'no-ssh', never: { ports: [22] } };
const ratchet: Assertion = { id: 'ratchet', opens_nothing_since: { revision: 1 } };
const policy = (...ports: readonly number[]) =>
  JSON.stringify({
    source_groups: [
      {
        id: 'lan',
        mode: 'enforce',
        sources: { cidrs: ['10.0.0.0/8'] },
        rules: ports.map((port) => ({ id: `p${port}`, action: 'allow', match: { proto: 'tcp', dst_ports: [port] } })),
      },
    ],
  });

/** Operations whose analyses wait until `release` is called. */
async function waiting(assertions: readonly Assertion[]) {
  const store = await openMemoryStore();
  await store.assertions.write('ann', undefined, () => assertions);
  const commit = (revision: number, ...ports: readonly number[]) =>
    store.policies.commit({
      put: storedPolicy({ id: 'a', form: 'singleton', revision }, policy(...ports)),
      generation: revision,
    });
  await commit(1, 80);
  const thread = threadHere();
  let release = (): void => {};
  let analyses = 0;
  const held: PolicyThread = {
    ...thread,
    perform: async (work, options) => {
      analyses++;
      await new Promise<void>((resolve) => {
        release = resolve;
      });
      return thread.perform(work, options);
    },
  };
  const operations = assertionsOver({
    store: store.assertions,
    waitMs: 20,
    analysis: {
      policies: store.policies,
      lane: explainLane(held, 60_000),
      surroundings: { fallback: 'deny', dns: false, servicePlane: false, policesNode: false, ipv6: false },
      seen: null,
    },
  });
  const results = async () =>
    (await operations.results(await operations.read(), 'ann')).map(({ result, message }) => [result, message]);
  /** Returns the results when all of them are known. */
  const answer = async () => {
    for (;;) {
      const known = await results();
      if (known.every(([result]) => result !== 'unknown')) return known;
      release();
    }
  };
  return { commit, results, answer, analyses: () => analyses, policies: store.policies };
}

describe('the results of the assertions', () => {
  test('the results of the assertions are unknown until they are computed, and computed once for a list and a policy', async () => {
    const node = await waiting([noSsh]);
    expect(await node.results()).toEqual([['unknown', 'the assertion is being checked; ask again']]);
    expect(await node.results()).toEqual([['unknown', 'the assertion is being checked; ask again']]);
    expect(node.analyses()).toBe(1);
    expect(await node.answer()).toEqual([['holds', 'the assertion holds']]);
    const before = node.analyses();
    expect(await node.results()).toEqual([['holds', 'the assertion holds']]);
    expect(node.analyses()).toBe(before);
  });

  test('the results of the assertions are computed again after a change of the policy', async () => {
    const node = await waiting([noSsh, ratchet]);
    expect(await node.answer()).toEqual([
      ['holds', 'the assertion holds'],
      ['holds', 'the assertion holds'],
    ]);
    await node.commit(2, 80, 22);
    expect(await node.answer()).toEqual([
      ['broken', 'lan/p22 passes 10.0.0.0/8 → any tcp/22'],
      ['broken', expect.stringMatching(/; revision 1 of the policy in force denied them$/)],
    ]);
  });

  test('the result of an assertion about a source group that the policy lacks is "broken", and the other assertions have their own results', async () => {
    const node = await waiting([noSsh, { id: 'guests', never: { from: { group: 'guests' } } }]);
    expect(await node.answer()).toEqual([
      ['holds', 'the assertion holds'],
      ['broken', 'the policy has no source group guests'],
    ]);
  });

  test('the results of the assertions are unknown while the policy in force cannot be read', async () => {
    const node = await waiting([noSsh]);
    const damaged = new StoreError('store_damaged', 'read policy a: its record is damaged');
    node.policies.active = async () => Promise.reject(damaged);
    expect(await node.results()).toEqual([['unknown', damaged.message]]);
  });
});
