import { describe, expect, it } from 'vitest';
import { BODY } from './fake-management.js';
import { rig } from './rig.js';

describe('a read with Weir-Min-Generation', () => {
  it('a read with the header Weir-Min-Generation succeeds if the node enforces the policy with this generation number or a later one', async () => {
    const { ask } = await rig();
    for (const generation of ['0', '7']) {
      const reply = await ask('GET', '/api/v1/policies', { headers: { 'weir-min-generation': generation } });
      expect(reply.statusCode).toBe(200);
    }
  });

  it('a read with the header Weir-Min-Generation gets 503 if the node does not yet enforce the policy with this generation number, and 400 if it is no number', async () => {
    const { ask } = await rig();
    const late = await ask('GET', '/api/v1/policy', { headers: { 'weir-min-generation': '8' } });
    expect([late.statusCode, late.body]).toEqual([
      503,
      expect.stringContaining('generation 7, and the request needs generation 8'),
    ]);
    const wrong = await ask('GET', '/api/v1/policy', { headers: { 'weir-min-generation': 'x' } });
    expect(wrong.statusCode).toBe(400);
  });

  it.each([
    ['GET', '/health', undefined],
    ['GET', '/metrics', undefined],
    ['PUT', '/api/v1/policy', BODY],
  ])(
    'the header Weir-Min-Generation is ignored in the request %s %s, which is no read that needs a token',
    async (method, path, body) => {
      const { ask } = await rig();
      for (const generation of ['8', 'x']) {
        const headers = { 'weir-min-generation': generation };
        const reply = await ask(method, path, body === undefined ? { headers } : { headers, body });
        expect(reply.statusCode).toBe(200);
      }
    },
  );
});

describe('a policy write in a cluster', () => {
  it('a policy write passes the query parameters `wait` and `rehearse` to the node, and refuses other values', async () => {
    const own = await rig();
    await own.ask('PUT', '/api/v1/policy?wait=all&rehearse=false', { body: BODY });
    expect(own.node.changes.at(-1)).toMatchObject({ with: { wait: 'all', rehearse: false } });
    expect((await own.ask('PUT', '/api/v1/policy?wait=some', { body: BODY })).statusCode).toBe(400);
  });
});
