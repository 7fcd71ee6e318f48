import { once } from 'node:events';
import { connect } from 'node:net';
import { describe, expect, test } from 'vitest';
import { auditDelta } from '#observe/findings/audit-event.js';
import { PendingFindings } from '#observe/findings/store/pending.js';
import { BODY, ETAG, fakeManagement, RECORD, TOKENS } from './fake-management.js';
import { listening, rig } from './rig.js';

const remote = '127.0.0.1';
const PUT_POLICY = { operation: 'putActivePolicy', target: '/api/v1/policy', remote };

describe('audit trail of refused logins', () => {
  test('the audit trail of refused logins records the requested operation and the reason of the refusal', async () => {
    const { ask, node } = await rig({ limits: { failedLoginsPerWindow: 2 } });
    await ask('GET', `/api/v1/policies/${RECORD.id}?x=1`, { token: 'guess' });
    await ask('PUT', '/api/v1/policy', { token: TOKENS.expired, body: BODY });
    await ask('PUT', '/api/v1/policy', { token: 'guess', body: BODY });
    await ask('PUT', '/api/v1/policy', { token: TOKENS.readonly, body: BODY });
    await ask('GET', '/api/v1/policy', { token: null, headers: { authorization: 'Basic YWRtaW46YWRtaW4=' } });
    const denied = { type: 'auth_denied', actor: null, remote };
    expect(node.recorded).toEqual([
      { ...denied, reason: 'invalid_token', operation: 'getPolicy', target: '/api/v1/policies/:id' },
      { ...denied, reason: 'invalid_token', ...PUT_POLICY },
      { ...denied, reason: 'too_many_failed_logins', ...PUT_POLICY },
      { ...denied, reason: 'forbidden', actor: 'rita', ...PUT_POLICY },
      { ...denied, reason: 'too_many_failed_logins', operation: 'getActivePolicy', target: '/api/v1/policy' },
    ]);
  });

  test('the audit trail of refused logins records requests that are refused because of their Host or Origin header', async () => {
    const { ask, node } = await rig();
    await ask('GET', '/api/v1/policy', { headers: { host: 'evil.example' } });
    await ask('PUT', '/api/v1/policy', { headers: { origin: 'https://evil.example' }, body: BODY });
    await ask('GET', '/nowhere', { headers: { host: 'evil.example' } });
    expect(node.recorded).toEqual([
      { type: 'auth_denied', reason: 'host_refused', actor: null, ...PUT_POLICY, operation: 'getActivePolicy' },
      { type: 'auth_denied', reason: 'origin_refused', actor: null, ...PUT_POLICY },
      { type: 'auth_denied', reason: 'host_refused', actor: null, operation: null, target: null, remote },
    ]);
  });

  test('the audit trail of refused logins adds two findings in all for 500 refused requests from one address with different tokens and paths', async () => {
    const { ask, node } = await rig({ limits: { requestsPerWindow: 10_000 } });
    const pending = new PendingFindings('api');
    for (let at = 0; at < 500; at++) {
      await ask('GET', `/api/v1/policies/${at}?q=${at}`, { token: `guess-${at}`, headers: { 'user-agent': `x${at}` } });
    }
    for (const [at, event] of node.recorded.entries()) pending.add(auditDelta(event, at));
    expect(pending.drain().map(({ dropReason, count, source }) => [dropReason, count, source])).toEqual([
      ['invalid_token', 10, remote],
      ['too_many_failed_logins', 490, remote],
    ]);
  });

  test('the audit trail of refused logins has no record of a request without a token, for an unknown path, or with an invalid query or body', async () => {
    const { ask, node } = await rig();
    await ask('GET', '/api/v1/policy', { token: null });
    await ask('GET', '/nowhere', { token: 'guess' });
    await ask('PUT', '/api/v1/settings/performance-mode', { body: 'not JSON' });
    await ask('PUT', '/api/v1/policy?token=x', { body: BODY });
    expect(node.recorded).toEqual([]);
  });
});

describe('audit trail of changes', () => {
  const changed = { type: 'config_change', actor: 'alice', remote };

  test('the audit trail of changes records the author, the target path, the status and the ETag of each successful change', async () => {
    const { ask, node } = await rig();
    await ask('PUT', '/api/v1/policy', { body: BODY });
    await ask('PUT', '/api/v1/settings/performance-mode', { body: { enabled: true } });
    await ask('DELETE', `/api/v1/policies/${RECORD.id}`);
    await ask('DELETE', '/api/v1/flows?src=10.0.0.7');
    await ask('DELETE', '/api/v1/tokens/t-1');
    expect(node.recorded).toEqual([
      { ...changed, ...PUT_POLICY, status: 200, etag: ETAG },
      {
        ...changed,
        operation: 'putPerformanceMode',
        target: '/api/v1/settings/performance-mode',
        status: 200,
        etag: '"performance-mode.1"',
      },
      { ...changed, operation: 'deletePolicy', target: `/api/v1/policies/${RECORD.id}`, status: 204, etag: null },
      { ...changed, operation: 'cutFlows', target: '/api/v1/flows?src=10.0.0.7', status: 200, etag: null },
      { ...changed, operation: 'revokeToken', target: '/api/v1/tokens/t-1', status: 204, etag: null },
    ]);
  });

  test('the audit trail of changes records a change even if the client disconnects before the node responds', async () => {
    const { api, node } = await rig();
    let finish = (): void => {};
    const { policyWrite } = node.answer;
    const asked = new Promise<void>((began) => {
      node.answer.policyWrite = async (write) => {
        began();
        await new Promise<void>((resolve) => {
          finish = resolve;
        });
        return policyWrite(write);
      };
    });
    const socket = connect(await listening(api), '127.0.0.1');
    const head = ['PUT /api/v1/policy HTTP/1.1', 'Host: localhost', `Authorization: Bearer ${TOKENS.admin}`];
    const body = ['Content-Type: application/json', `Content-Length: ${BODY.length}`, '', BODY];
    socket.write([...head, ...body].join('\r\n'));
    await asked;
    socket.resetAndDestroy();
    await once(socket, 'close');
    await expect.poll(() => new Promise((resolve) => api.server.getConnections((_, open) => resolve(open)))).toBe(0);
    finish();
    await expect.poll(() => node.recorded).toEqual([{ ...changed, ...PUT_POLICY, status: 200, etag: ETAG }]);
  });

  test('the audit trail of changes has no record of reads, explain and sysdump requests, dry runs, and refused writes', async () => {
    const { ask, node } = await rig();
    await ask('GET', '/api/v1/policy');
    await ask('HEAD', '/api/v1/policy');
    await ask('PUT', '/api/v1/policy?dry_run', { body: BODY });
    await ask('PUT', '/api/v1/policy?dry_run=true', { body: BODY });
    await ask('DELETE', '/api/v1/flows?all=true&dry_run=true');
    await ask('POST', '/api/v1/policy/explain', { body: { src: '10.0.0.7', query: 'a.example' } });
    await ask('POST', '/api/v1/support/sysdump/cluster');
    const setting = '/api/v1/settings/performance-mode';
    await ask('PUT', setting, { headers: { 'if-match': '"other"' }, body: { enabled: true } });
    await ask('PUT', setting, { body: { enabled: 1 } });
    expect(node.recorded.filter(({ type }) => type === 'config_change')).toEqual([]);
  });
});

test('the audit trail contains no token, password or key from the headers, path, query or body of a request', async () => {
  const node = fakeManagement();
  const { ask } = await rig({}, node);
  const secret = 'eyJhbGciOiJFZERTQSJ9.cGxhbnRlZA.c2VjcmV0';
  const integration = {
    name: 'prod',
    kind: 'kubernetes',
    api_server_url: 'https://10.0.0.1:6443',
    ca_cert_pem: '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n',
    service_account_token: secret,
  };
  await ask('GET', '/api/v1/policy', { token: secret });
  await ask('GET', '/api/v1/policy', { token: null, headers: { authorization: `Basic ${secret}` } });
  await ask('GET', '/api/v1/policy', { headers: { cookie: `weir=${secret}`, host: `${secret}.example` } });
  await ask('PUT', `/api/v1/policy?token=${secret}`, { body: BODY });
  await ask('GET', `/api/v1/policies/${secret}`, { token: 'guess' });
  await ask('POST', '/api/v1/integrations', { body: integration });
  await ask('POST', '/api/v1/tokens', { body: { subject: 'ops', role: 'admin' } });
  expect(node.recorded.length).toBeGreaterThan(3);
  expect(JSON.stringify(node.recorded)).not.toMatch(/cGxhbnRlZA|c2VjcmV0|eyJ/);
});
