import { afterAll, beforeAll, expect, test } from 'vitest';
import { createRig, type NodeRig, policyOf } from './rig.js';

let rig: NodeRig;
beforeAll(async () => {
  const sections = { policy: { fallback: 'deny', history: { revisions: 10 } } };
  rig = await createRig('bounds', [80, 81], { sections, dataplane: { pickup: '0s' } });
});
afterAll(() => rig?.remove());

const allow = (port: number) => policyOf([{ match: { proto: 'tcp', dst_ports: [port] } }]);
type Page = { readonly items: readonly { readonly revision: number; readonly comment: string }[] };
async function read(path: string) {
  const { status, body } = await rig.node.request('GET', path);
  return { status, body };
}

test('a node with `policy.history.revisions: 10` removes old revisions after 256 writes, keeps the active policy in force, and refuses a rollback to a removed revision', async () => {
  for (let revision = 1; revision <= 257; revision++) {
    const path = `/api/v1/policy?comment=change%20${revision}`;
    expect((await rig.node.request('PUT', path, allow(revision % 2 === 1 ? 80 : 81))).status).toBe(200);
  }
  const { items } = (await read('/api/v1/policies')).body as { items: { id: string }[] };
  const history = `/api/v1/policies/${items[0]?.id ?? ''}/history`;
  const oldest = async () => ((await read(`${history}?limit=500`)).body as Page).items.at(-1);
  await expect
    .poll(oldest, { timeout: 20_000 })
    .toMatchObject({ revision: expect.toSatisfy((at: number) => at > 200) });
  const first = (await oldest())?.revision ?? 0;
  expect((await read(`${history}/${first - 1}`)).status).toBe(404);
  await rig.node.restart();
  await rig.node.ready();
  expect(await rig.tcp(80)).toBe('open');
  const page = (await read(`${history}?limit=500`)).body as Page;
  expect(page.items.map(({ revision, comment }) => [revision, comment])).toEqual(
    Array.from({ length: 257 - first + 1 }, (_, index) => [257 - index, `change ${257 - index}`]),
  );
  for (const { revision } of page.items) expect((await read(`${history}/${revision}`)).status).toBe(200);
  const rollback = history.replace('history', 'rollback');
  expect((await rig.node.request('POST', rollback, { revision: first - 1 })).status).toBe(404);
  expect((await rig.node.request('POST', rollback, { revision: first % 2 === 0 ? first : first + 1 })).status).toBe(
    200,
  );
  expect(await rig.tcp(81)).toBe('open');
});
