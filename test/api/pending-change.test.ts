import { describe, expect, test } from 'vitest';
import { BODY, fakeManagement } from './fake-management.js';
import { rig } from './rig.js';

const PUT = '/api/v1/policy?';
const PENDING = '/api/v1/policy/pending';

describe('the query of a policy write', () => {
  test.each([
    ['confirm_within=90', { kind: 'confirm', withinMs: 90_000 }],
    ['confirm_within=5m', { kind: 'confirm', withinMs: 300_000 }],
    ['rollout_share=10', { kind: 'rollout', share: 10, holdMs: 300_000 }],
    ['rollout_share=99&rollout_hold=24h', { kind: 'rollout', share: 99, holdMs: 86_400_000 }],
  ])(
    'the query %s of a policy write defines when the write must be confirmed, or how it is rolled out in stages',
    async (query, terms) => {
      const { ask, node } = await rig();
      expect((await ask('PUT', PUT + query, { body: BODY })).statusCode).toBe(200);
      expect(node.changes).toMatchObject([{ with: { terms } }]);
    },
  );

  test.each([
    ['confirm_within=4s', '?confirm_within', /from 5s to 24h/],
    ['confirm_within=soon', '?confirm_within', /from 5s to 24h/],
    ['rollout_share=0', '?rollout_share', /from 1 to 99/],
    ['rollout_share=100', '?rollout_share', /from 1 to 99/],
    ['rollout_hold=5m', '?rollout_hold', /Needs rollout_share/],
    ['rollout_share=10&confirm_within=5m', '?confirm_within', /Cannot be combined/],
    ['rollout_share=10&wait=all', '?wait', /Cannot be combined/],
  ])(
    'a policy write is refused if the parameters %s of its query, for a confirmation or a staged roll-out, are invalid',
    async (query, pointer, message) => {
      const { ask, node } = await rig();
      const reply = await ask('PUT', PUT + query, { body: BODY });
      expect(reply.statusCode).toBe(400);
      expect(reply.json()).toMatchObject({ problems: [{ pointer, message: expect.stringMatching(message) }] });
      expect(node.changes).toEqual([]);
    },
  );
});

describe('the pending change', () => {
  test('a read of the pending policy change returns the health of the nodes that a staged roll-out reaches first', async () => {
    const { ask } = await rig();
    expect((await ask('GET', PENDING)).json()).toMatchObject({
      pending: { kind: 'rollout', generation: 42, share: 10, nodes: [{ id: 'node-a', healthy: true, fault: null }] },
      reverted: null,
    });
  });

  test.each([
    ['confirm', 'complete'],
    ['revert', 'revert'],
  ])(
    'a POST with the last path segment "%s" ends the pending policy change, which waits for a confirmation',
    async (path, outcome) => {
      const { ask, node } = await rig();
      expect((await ask('POST', `${PENDING}/${path}`)).statusCode).toBe(200);
      expect(node.changes).toMatchObject([{ call: 'pendingChange.end', with: { outcome, dryRun: false } }]);
    },
  );

  test('a request to end the pending policy change gets 404 if no change is pending', async () => {
    const end = async () => ({ kind: 'refused', code: 'not_found', detail: 'no policy change is pending' }) as const;
    const read = async () => ({ pending: null, reverted: null });
    const { ask } = await rig({}, fakeManagement({ pendingChange: { ...fakeManagement().pendingChange, read, end } }));
    expect((await ask('POST', `${PENDING}/confirm`)).statusCode).toBe(404);
  });
});
