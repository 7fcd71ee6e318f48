import { describe, expect, it } from 'vitest';
import { BODY } from './fake-management.js';
import { rig } from './rig.js';

describe('a read with Weir-Min-Generation', () => {
  it('succeeds if the node enforces this generation or a later one', async () => {
    const { ask } = await rig();
    for (const generation of ['0', '7']) {
      const reply = await ask('GET', '/api/v1/policies', { headers: { 'weir-min-generation': generation } });
      expect(reply.statusCode).toBe(200);
    }
  });

  it('is 503 if the node does not enforce this generation, and 400 for any other text', async () => {
    const { ask } = await rig();
    const late = await ask('GET', '/api/v1/policy', { headers: { 'weir-min-generation': '8' } });
    expect([late.statusCode, late.body]).toEqual([503, expect.stringContaining('generation 7, and 8')]);
    const wrong = await ask('GET', '/api/v1/policy', { headers: { 'weir-min-generation': 'x' } });
    expect(wrong.statusCode).toBe(400);
  });

  it.each([
    ['GET', '/health', undefined],
    ['GET', '/metrics', undefined],
    ['PUT', '/api/v1/policy', BODY],
  ])('is only a read with a token: %s %s ignores the header', async (method, path, body) => {
    const { ask } = await rig();
    for (const generation of ['8', 'x']) {
      const headers = { 'weir-min-generation': generation };
      const reply = await ask(method, path, body === undefined ? { headers } : { headers, body });
      expect(reply.statusCode).toBe(200);
    }
  });
});

describe('a policy write in a cluster', () => {
  it('passes `wait` and `rehearse` to the node, and refuses other values', async () => {
    const own = await rig();
    await own.ask('PUT', '/api/v1/policy?wait=all&rehearse=false', { body: BODY });
    expect(own.node.changes.at(-1)).toMatchObject({ with: { wait: 'all', rehearse: false } });
    expect((await own.ask('PUT', '/api/v1/policy?wait=some', { body: BODY })).statusCode).toBe(400);
  });
});
