import { expect, it } from 'vitest';
import { createIntegrationStore } from '#store/settings/integration-store.js';
import type { StoreError } from '#store/store-error.js';
import { createMemoryStore } from '#test/store/memory-store.js';

const integration = {
  name: 'prod',
  kind: 'kubernetes',
  api_server_url: 'https://10.0.0.1:6443',
  ca_cert_pem: 'pem',
  service_account_token: 'secret',
} as const;
const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => 'done',
    (error: StoreError) => error.code,
  );

it('the store of Kubernetes integrations counts the revisions of a record, and keeps the last author and the time of creation', async () => {
  let seconds = 0;
  const store = createIntegrationStore(createMemoryStore(), { now: () => new Date(seconds++ * 1000) });
  const made = await store.put(integration, 'ops', 0);
  const changed = await store.put({ ...integration, ca_cert_pem: 'other' }, 'dev', 1);
  expect([made, changed]).toEqual([
    {
      ...integration,
      revision: 1,
      created_at: '1970-01-01T00:00:00.000Z',
      updated_at: '1970-01-01T00:00:00.000Z',
      updated_by: 'ops',
    },
    {
      ...integration,
      ca_cert_pem: 'other',
      revision: 2,
      created_at: '1970-01-01T00:00:00.000Z',
      updated_at: '1970-01-01T00:00:01.000Z',
      updated_by: 'dev',
    },
  ]);
  expect(await store.get('prod')).toEqual(changed);
  expect(await store.list()).toEqual([changed]);
});

it('the store of Kubernetes integrations refuses a write or removal that expects another revision than the stored revision', async () => {
  const store = createIntegrationStore(createMemoryStore());
  expect(await codeOf(store.put(integration, 'ops', 1))).toBe('revision_conflict');
  await store.put(integration, 'ops');
  expect(await codeOf(store.put(integration, 'ops', 0))).toBe('revision_conflict');
  expect(await codeOf(store.remove('prod', 2))).toBe('revision_conflict');
  expect(await store.remove('prod', 1)).toBe(true);
  expect(await store.remove('prod')).toBe(false);
  expect(await store.get('prod')).toBeNull();
});

it('the store of Kubernetes integrations accepts only one of two concurrent writes that expect the same revision', async () => {
  const store = createIntegrationStore(createMemoryStore());
  const codes = await Promise.all([codeOf(store.put(integration, 'a', 0)), codeOf(store.put(integration, 'b', 0))]);
  expect(codes).toEqual(['done', 'revision_conflict']);
});
