import { describe, expect, test } from 'vitest';
import { createApi } from '#api/server.js';
import { CERTIFICATE } from './certificate.js';
import { BODY, CHECKED, fakeManagement, GROUP, TOKENS } from './fake-management.js';
import { rig } from './rig.js';

const described = await createApi(fakeManagement(), { version: '0.1.0' });
const document = (await described.inject({ url: '/openapi/service-v1.json' })).json<{
  paths: Record<string, Record<string, { parameters?: readonly { name: string }[] }>>;
}>();
await described.close();

const ID = '0b9ff3a1-66a6-4a54-9c61-3d7b3a7c2f10';
const ENVELOPE = { mode: 'enforce', policy: JSON.parse(BODY) as object };
const INTEGRATION = {
  kind: 'kubernetes',
  api_server_url: 'https://kube.test:6443',
  ca_cert_pem: CERTIFICATE,
  service_account_token: 'secret',
};
const INTEGRATIONS = '/api/v1/integrations';
const ASSERTIONS = '/api/v1/assertions';
const NEVER = { never: { ports: [22] } };
const CA = '/api/v1/settings/tls-intercept-ca';
const PERFORMANCE = '/api/v1/settings/performance-mode';

/**
 * Every write operation of the API: HTTP method, path and a valid body. The body is undefined if the
 * operation has none.
 */
const WRITES: readonly (readonly [method: string, path: string, body: object | undefined])[] = [
  ['PUT', '/api/v1/policy', JSON.parse(BODY) as object],
  ['POST', '/api/v1/policies', ENVELOPE],
  ['PUT', `/api/v1/policies/${ID}`, ENVELOPE],
  ['DELETE', `/api/v1/policies/${ID}`, undefined],
  ['POST', `/api/v1/policies/${ID}/activate`, undefined],
  ['POST', `/api/v1/policies/${ID}/rollback`, { revision: 1 }],
  ['PUT', '/api/v1/policies/by-name/office', ENVELOPE],
  ['PUT', `/api/v1/policies/${ID}/source-groups/lan`, JSON.parse(GROUP) as object],
  ['DELETE', `/api/v1/policies/${ID}/source-groups/lan`, undefined],
  ['PUT', ASSERTIONS, { assertions: [] }],
  ['PUT', `${ASSERTIONS}/there`, NEVER],
  ['DELETE', `${ASSERTIONS}/there`, undefined],
  ['PUT', PERFORMANCE, { enabled: false }],
  ['POST', '/api/v1/config/reload', undefined],
  ['POST', INTEGRATIONS, { name: 'prod', ...INTEGRATION }],
  ['PUT', `${INTEGRATIONS}/prod`, INTEGRATION],
  ['DELETE', `${INTEGRATIONS}/there`, undefined],
  ['PUT', CA, { cert_pem: CERTIFICATE, key_pem: 'key' }],
  ['DELETE', CA, undefined],
  ['POST', `${CA}/generate`, undefined],
  ['POST', '/api/v1/tokens', { subject: 'ops', role: 'readonly' }],
  ['DELETE', '/api/v1/tokens/t-1', undefined],
  ['POST', '/api/v1/policy/pending/confirm', undefined],
  ['POST', '/api/v1/policy/pending/revert', undefined],
  ['POST', '/api/v1/cluster/init', undefined],
  ['POST', '/api/v1/cluster/recover', { keep: 'store' }],
  ['DELETE', '/api/v1/cluster/nodes/node-b', undefined],
  ['POST', '/api/v1/cluster/join-tokens', undefined],
  ['DELETE', '/api/v1/flows?all=true', undefined],
];
/** POST paths that change nothing and therefore have no dry run. */
const QUESTIONS = ['/api/v1/policy/explain', '/api/v1/policy/diff', '/api/v1/policy/ask', '/api/v1/policy/lint'];
const NO_WRITES = [
  ...QUESTIONS,
  ...['/api/v1/support/sysdump/cluster', '/api/v1/support/sysdump/local'],
  ...['/api/v1/session', '/api/v1/session/link'],
];

/** Starts the API of a fake node that has one integration and one intercept CA. */
async function filledRig() {
  const own = await rig();
  await own.ask('PUT', `${INTEGRATIONS}/there`, { body: INTEGRATION });
  await own.ask('PUT', `${ASSERTIONS}/there`, { body: NEVER });
  await own.ask('POST', `${CA}/generate`);
  own.node.changes.length = 0;
  own.node.recorded.length = 0;
  own.node.answer.policyWrite = () => CHECKED;
  return own;
}

describe('dry run', () => {
  test('every write operation of the API supports a dry run', () => {
    const without = Object.entries(document.paths).flatMap(([path, operations]) =>
      Object.entries(operations)
        .filter(([method]) => method !== 'get' && !NO_WRITES.includes(path))
        .filter(([, { parameters = [] }]) => !parameters.some(({ name }) => name === 'dry_run'))
        .map(([method]) => `${method} ${path}`),
    );
    expect(without).toEqual([]);
    const writes = Object.entries(document.paths).flatMap(([path, operations]) =>
      NO_WRITES.includes(path) ? [] : Object.keys(operations).filter((method) => method !== 'get'),
    );
    expect(WRITES).toHaveLength(writes.length);
  });

  test.each(WRITES)(
    'a dry run of the write request %s %s is allowed for the role readonly, and changes nothing',
    async (method, path, body) => {
      const { ask, node } = await filledRig();
      const given = { token: TOKENS.readonly, ...(body === undefined ? {} : { body }) };
      const query = `${path.includes('?') ? '&' : '?'}dry_run=true`;
      const answer = await ask(method, path + query, given);
      expect([method, path, answer.statusCode]).toEqual([method, path, expect.toSatisfy((code) => code < 300)]);
      // A dry run may call the node only with `dryRun: true`, because the node then writes nothing.
      const asked = node.changes.map((change) => change.with as { dryRun?: boolean; mayWatch?: boolean });
      expect(asked.map(({ dryRun }) => dryRun)).toEqual(asked.map(() => true));
      expect(asked.filter(({ mayWatch }) => mayWatch === true)).toEqual([]);
      expect(node.recorded.filter(({ type }) => type === 'config_change')).toEqual([]);
      expect((await ask(method, path, given)).statusCode).toBe(403);
      expect((await ask(method, `${path}${query}&dry_run=true`, given)).statusCode).toBe(403);
      expect((await ask(method, `${path}${query.replace('true', 'false')}`, given)).statusCode).toBe(403);
    },
  );

  test.each([
    ['DELETE', `${INTEGRATIONS}/other`, 404],
    ['DELETE', '/api/v1/tokens/t-9', 404],
    ['DELETE', `${ASSERTIONS}/other`, 404],
  ])(
    'a dry run of the request %s %s for an object that does not exist is refused with 404, like the real request',
    async (method, path, status) => {
      const { ask } = await filledRig();
      expect((await ask(method, `${path}?dry_run=true`)).statusCode).toBe(status);
      expect((await ask(method, path)).statusCode).toBe(status);
    },
  );

  test.each([
    ['PUT', ASSERTIONS, { assertions: [] }],
    ['DELETE', `${ASSERTIONS}/there`, undefined],
    ['PUT', PERFORMANCE, { enabled: false }],
    ['PUT', `${INTEGRATIONS}/there`, INTEGRATION],
    ['DELETE', `${INTEGRATIONS}/there`, undefined],
    ['POST', `${CA}/generate`, undefined],
    ['DELETE', CA, undefined],
  ])(
    'a dry run of the write request %s %s is refused with 412 if the If-Match header does not match',
    async (method, path, body) => {
      const { ask } = await filledRig();
      const headers = { 'if-match': '"another"' };
      const answer = await ask(method, `${path}?dry_run=true`, body === undefined ? { headers } : { headers, body });
      expect(answer.statusCode).toBe(412);
    },
  );

  test('a dry run of POST /api/v1/integrations is refused with 412 if If-None-Match fails, like the real write', async () => {
    const { ask } = await filledRig();
    const body = { name: 'there', ...INTEGRATION };
    const headers = { 'if-none-match': '*' };
    expect((await ask('POST', `${INTEGRATIONS}?dry_run=true`, { body, headers })).statusCode).toBe(412);
    expect((await ask('POST', INTEGRATIONS, { body, headers })).statusCode).toBe(412);
    expect((await ask('POST', INTEGRATIONS, { body })).statusCode).toBe(409);
  });
});
