import { describe, expect, test } from 'vitest';
import { CERTIFICATE } from './certificate.js';
import { fakeManagement, SINCE, STATUS, TOKENS } from './fake-management.js';
import { rig } from './rig.js';

describe('performance mode', () => {
  const PATH = '/api/v1/settings/performance-mode';

  test('performance mode has an ETag, and a write whose If-Match header has an outdated ETag is refused with 412', async () => {
    const { ask, node } = await rig();
    const before = await ask('GET', PATH);
    expect([before.json(), before.headers.etag]).toEqual([{ enabled: true, source: null }, '"performance-mode.0"']);
    const written = await ask('PUT', PATH, {
      body: { enabled: false },
      headers: { 'if-match': '"performance-mode.0"' },
    });
    expect([written.statusCode, written.json(), written.headers.etag]).toEqual([
      200,
      { enabled: false, source: 'local' },
      '"performance-mode.1"',
    ]);
    expect(node.changes).toEqual([
      { call: 'performanceMode.write', with: { enabled: false, author: 'alice', expectedRevision: 0 } },
    ]);
    const late = await ask('PUT', PATH, { body: { enabled: true }, headers: { 'if-match': '"performance-mode.0"' } });
    expect([late.statusCode, late.json().detail]).toEqual([
      412,
      'the stored ETag is "performance-mode.1"; read it again, and write with the new ETag in If-Match',
    ]);
    expect(node.changes).toHaveLength(1);
  });

  test('performance mode is not written, and the response has the status 412, if the node reports that another write came first', async () => {
    const node = await rig().then((made) => made.node);
    const { ask } = await rig(
      {},
      {
        ...node,
        performanceMode: {
          source: 'local',
          read: () => node.performanceMode.read(),
          write: async () => ({ kind: 'refused', code: 'precondition_failed', detail: 'it was written meanwhile' }),
        },
      },
    );
    expect((await ask('PUT', PATH, { body: { enabled: false }, headers: { 'if-match': '*' } })).statusCode).toBe(412);
  });

  test('a dry run names the store of the cluster as the source of a written performance mode', async () => {
    const node = fakeManagement();
    const { ask } = await rig({}, { ...node, performanceMode: { ...node.performanceMode, source: 'cluster' } });
    const answer = await ask('PUT', `${PATH}?dry_run=true`, { body: { enabled: false } });
    expect([answer.json(), node.changes]).toEqual([{ enabled: false, source: 'cluster', dry_run: true }, []]);
  });

  test.each(['/api/v1/audit/findings', '/api/v1/audit/findings/local', '/api/v1/wiretap/stream'])(
    'performance mode must be enabled for GET %s, and otherwise that route returns 503',
    async (path) => {
      const { ask } = await rig();
      expect((await ask('GET', path)).json().type).not.toBe('urn:weir:error:performance_mode_disabled');
      await ask('PUT', PATH, { body: { enabled: false } });
      const answer = await ask('GET', path);
      expect([answer.statusCode, answer.json().type]).toEqual([503, 'urn:weir:error:performance_mode_disabled']);
    },
  );
});

test('GET /api/v1/dns-cache returns 503 while the DNS proxy does not run', async () => {
  const { ask } = await rig();
  const answer = await ask('GET', '/api/v1/dns-cache');
  expect([answer.statusCode, answer.json().type]).toEqual([503, 'urn:weir:error:feature_unavailable']);
  expect(answer.json().error).toMatch(/\bthis node\b.*\.$/);
});

test('GET /api/v1/dns-cache returns each name with its granted addresses, patterns and expiry', async () => {
  const { ask, node } = await rig();
  node.reads.names = [
    {
      hostname: 'api.example.com',
      addresses: [0xcb00_7107, 0xcb00_7108],
      patterns: ['*.example.com'],
      expiresAtMs: Date.UTC(2026, 0, 2, 3, 4, 5),
      lastSeenMs: Date.UTC(2026, 0, 2, 3, 3, 5),
    },
  ];
  expect((await ask('GET', '/api/v1/dns-cache')).json()).toEqual({
    items: [
      {
        hostname: 'api.example.com',
        ips: ['203.0.113.7', '203.0.113.8'],
        patterns: ['*.example.com'],
        expires_at: '2026-01-02T03:04:05.000Z',
        last_seen: '2026-01-02T03:03:05.000Z',
      },
    ],
  });
});

describe('routes of Kubernetes integrations', () => {
  const PATH = '/api/v1/integrations';
  const integration = {
    kind: 'kubernetes',
    api_server_url: 'https://kube.example.com:6443',
    ca_cert_pem: CERTIFICATE,
    service_account_token: 'secret-of-the-cluster',
  };
  const { service_account_token: _, ...visible } = integration;
  const local = { name: 'local', kind: 'kubernetes', in_cluster: true };
  const shown = {
    name: 'prod',
    ...visible,
    in_cluster: false,
    revision: 1,
    created_at: SINCE,
    updated_at: SINCE,
    updated_by: 'alice',
  };
  test('the routes of Kubernetes integrations create, read, replace and delete an integration, and return no service account token', async () => {
    const { ask, node } = await rig();
    const made = await ask('POST', PATH, { body: { name: 'prod', ...integration } });
    expect([made.statusCode, made.headers.location, made.headers.etag, made.json()]).toEqual([
      201,
      '/api/v1/integrations/prod',
      '"prod.1"',
      { ...shown, warnings: [] },
    ]);
    const read = await ask('GET', `${PATH}/prod`, { token: TOKENS.readonly });
    expect([read.json(), read.headers.etag]).toEqual([shown, '"prod.1"']);
    const list = await ask('GET', PATH);
    expect(list.json()).toEqual({ items: [local, shown] });
    const replaced = await ask('PUT', `${PATH}/prod`, { body: integration, headers: { 'if-match': '"prod.1"' } });
    expect([replaced.statusCode, replaced.headers.etag, replaced.headers.location]).toEqual([
      200,
      '"prod.2"',
      undefined,
    ]);
    const removed = await ask('DELETE', `${PATH}/prod`, { headers: { 'if-match': '"prod.2"' } });
    expect([removed.statusCode, removed.body]).toEqual([204, '']);
    expect((await ask('GET', `${PATH}/prod`)).statusCode).toBe(404);
    expect((await ask('DELETE', `${PATH}/prod`)).statusCode).toBe(404);
    for (const answer of [made, read, list, replaced]) expect(answer.body).not.toContain('secret-of-the-cluster');
    expect(
      node.changes.map(({ call, with: argument }) => [
        call,
        (argument as { expectedRevision?: number }).expectedRevision,
      ]),
    ).toEqual([
      ['integrations.write', 0],
      ['integrations.write', 1],
      ['integrations.remove', 2],
    ]);
  });

  test('the routes of Kubernetes integrations return 409 for a second integration of the same name, and 412 for a precondition that fails', async () => {
    const { ask, node } = await rig();
    await ask('PUT', `${PATH}/prod`, { body: integration, headers: { 'if-none-match': '*' } });
    expect((await ask('POST', PATH, { body: { name: 'prod', ...integration } })).json().type).toBe(
      'urn:weir:error:already_exists',
    );
    const again = await ask('PUT', `${PATH}/prod`, { body: integration, headers: { 'if-none-match': '*' } });
    const old = await ask('PUT', `${PATH}/prod`, { body: integration, headers: { 'if-match': '"prod.7"' } });
    const gone = await ask('PUT', `${PATH}/other`, { body: integration, headers: { 'if-match': '*' } });
    const kept = await ask('DELETE', `${PATH}/prod`, { headers: { 'if-match': 'W/"prod.1"' } });
    expect([again, old, gone, kept].map(({ statusCode }) => statusCode)).toEqual([412, 412, 412, 412]);
    expect(node.changes).toHaveLength(1);
  });

  test('the routes of Kubernetes integrations return 409 if the active policy uses the integration that a request deletes', async () => {
    const { node } = await rig();
    const { ask } = await rig(
      {},
      {
        ...node,
        integrations: {
          ...node.integrations,
          remove: async () => ({ kind: 'refused', code: 'integration_in_use', detail: 'group lan names it' }),
        },
      },
    );
    await ask('PUT', `${PATH}/prod`, { body: integration });
    const answer = await ask('DELETE', `${PATH}/prod`);
    expect([answer.statusCode, answer.json().error]).toEqual([409, 'group lan names it.']);
  });

  test('the routes of Kubernetes integrations show the configured integration without an ETag, and refuse to write it before they test preconditions', async () => {
    const { ask, node } = await rig();
    const read = await ask('GET', `${PATH}/local`);
    expect([read.statusCode, read.json(), read.headers.etag]).toEqual([200, local, undefined]);
    const answers = [
      await ask('POST', PATH, { body: { name: 'local', ...integration } }),
      await ask('PUT', `${PATH}/local`, { body: integration, headers: { 'if-match': '"local.1"' } }),
      await ask('PUT', `${PATH}/local?dry_run=true`, { body: integration }),
      await ask('DELETE', `${PATH}/local`),
    ];
    for (const answer of answers)
      expect([answer.statusCode, answer.json().type, answer.json().detail]).toEqual([
        409,
        'urn:weir:error:integration_read_only',
        'the integration local is defined by kubernetes.in_cluster of the configuration',
      ]);
    expect(node.changes).toEqual([]);
  });

  test('the routes of Kubernetes integrations return the status of an integration, or 404 for an unknown integration', async () => {
    const { ask } = await rig();
    const { lastError, ...status } = STATUS;
    const answer = await ask('GET', `${PATH}/local/status`, { token: TOKENS.readonly });
    expect([answer.statusCode, answer.json()]).toEqual([200, { ...status, last_error: lastError }]);
    expect((await ask('GET', `${PATH}/other/status`)).statusCode).toBe(404);
  });

  test('the routes of Kubernetes integrations return the warnings of a write, and 503 for the status if the node does not watch Kubernetes', async () => {
    const warnings = [{ pointer: '/service_account_token', code: 'token_expires', message: 'Soon.' }] as const;
    const { integrations } = fakeManagement();
    const tried: boolean[] = [];
    const write: typeof integrations.write = async (wanted) => {
      tried.push(wanted.tryAccess);
      const written = await integrations.write(wanted);
      return written.kind === 'refused' ? written : { ...written, warnings };
    };
    const status = async () => ({ kind: 'refused', code: 'feature_unavailable', detail: 'no' }) as const;
    const node = fakeManagement({ integrations: { ...integrations, write } });
    const { ask } = await rig({}, { ...node, kubernetes: { ...node.kubernetes, status } });
    for (const query of ['', '?dry_run=true'])
      expect((await ask('PUT', `${PATH}/prod${query}`, { body: integration })).json().warnings).toEqual(warnings);
    const ofReader = { body: integration, token: TOKENS.readonly };
    expect((await ask('PUT', `${PATH}/prod?dry_run=true`, ofReader)).statusCode).toBe(200);
    // A dry run with a readonly token must not make the node open connections to the API server.
    expect(tried).toEqual([true, true, false]);
    expect((await ask('GET', `${PATH}/prod/status`)).json().type).toBe('urn:weir:error:feature_unavailable');
  });

  test('the routes of Kubernetes integrations refuse a write if the name in the body differs from the name in the path', async () => {
    const { ask, node } = await rig();
    const answer = await ask('PUT', `${PATH}/prod`, { body: { name: 'test', ...integration } });
    expect([answer.statusCode, answer.json().problems[0].pointer]).toEqual([400, '/name']);
    expect((await ask('PUT', `${PATH}/Prod`, { body: integration })).statusCode).toBe(400);
    expect(node.changes).toEqual([]);
  });

  test.each([
    'http://kube.example.com',
    'https://user:pw@kube.example.com',
    'https://kube.example.com/?x=1',
    'https://kube.example.com/#x',
    'https://',
    'file:///etc/passwd',
    'https://kube example.com',
  ])('the routes of Kubernetes integrations refuse an integration with the API server URL %s', async (url) => {
    const { ask, node } = await rig();
    const answer = await ask('POST', PATH, { body: { name: 'prod', ...integration, api_server_url: url } });
    expect(answer.json().problems.map(({ pointer }: { pointer: string }) => pointer)).toEqual(['/api_server_url']);
    expect(node.changes).toEqual([]);
  });
});

describe('API tokens', () => {
  test('an API token appears as text only in the response to the create request, is listed without text, and can be revoked', async () => {
    const { ask, node } = await rig();
    const issued = await ask('POST', '/api/v1/tokens', { body: { subject: 'ci', role: 'readonly', expires_in: 60 } });
    expect([issued.statusCode, issued.json()]).toEqual([
      201,
      {
        id: 't-2',
        subject: 'ci',
        role: 'readonly',
        created_at: SINCE,
        expires_at: null,
        revoked_at: null,
        token: 'eyJ.issued.token',
      },
    ]);
    expect(await ask('GET', '/api/v1/tokens').then((answer) => answer.json())).toEqual({
      items: [{ id: 't-1', subject: 'ops', role: 'admin', created_at: SINCE, expires_at: null, revoked_at: null }],
    });
    expect((await ask('DELETE', '/api/v1/tokens/t-1')).statusCode).toBe(204);
    expect((await ask('DELETE', '/api/v1/tokens/t-9')).statusCode).toBe(404);
    expect(node.changes).toEqual([
      { call: 'tokens.issue', with: { subject: 'ci', role: 'readonly', expiresInMs: 60_000 } },
      { call: 'tokens.revoke', with: 't-1' },
      { call: 'tokens.revoke', with: 't-9' },
    ]);
  });
});

describe('a reload of the configuration', () => {
  const PATH = '/api/v1/config/reload';
  const REPORT = {
    applied: ['/log/level'],
    unchanged: ['/version', '/node/id'],
    needs_restart: ['/dataplane/mark_mask'],
  };

  test('a reload of the configuration returns the applied, the unchanged and the restart-requiring fields, and a dry run changes nothing', async () => {
    const { ask, node } = await rig();
    expect((await ask('POST', `${PATH}?dry_run=true`)).json()).toEqual({ ...REPORT, dry_run: true });
    expect(node.changes).toEqual([]);
    expect((await ask('POST', PATH)).json()).toEqual(REPORT);
    expect((await ask('POST', `${PATH}?allow_unpoliced=true`)).json()).toEqual(REPORT);
    expect((await ask('POST', `${PATH}?allow_open=true`)).json()).toEqual(REPORT);
    const flags = [{}, { allowUnpoliced: true }, { allowOpen: true }];
    expect(node.changes).toEqual(
      flags.map((given) => ({
        call: 'configuration.reload',
        with: { dryRun: false, allowUnpoliced: false, allowOpen: false, author: 'alice', ...given },
      })),
    );
  });

  test('a failed reload of the configuration returns the problems of the file, or the reason of the part that failed', async () => {
    const problems = [
      { pointer: '/log/level', code: 'invalid_value', message: 'weir.yaml:1:2: must be a level' },
    ] as const;
    const answers = [
      { kind: 'refused', code: 'invalid_config', detail: 'the file is not valid', problems },
      { kind: 'refused', code: 'would_unpolice', detail: 'wan0 would no longer be policed' },
      { kind: 'refused', code: 'would_open', detail: 'all IPv6 would pass' },
      { kind: 'refused', code: 'reload_failed', detail: 'listen on 10.0.0.1:53: EADDRINUSE' },
    ] as const;
    for (const answer of answers) {
      const configuration = { reload: async () => answer, lastReload: () => null };
      const { ask } = await rig({}, { ...fakeManagement(), configuration });
      const reply = await ask('POST', PATH);
      const { type, detail, problems: told } = reply.json();
      expect([reply.statusCode, type, detail, told]).toEqual([
        answer.code === 'reload_failed' ? 503 : 409,
        `urn:weir:error:${answer.code}`,
        answer.detail,
        'problems' in answer ? answer.problems : undefined,
      ]);
    }
  });

  test('a read of the reload route returns the last reload of the configuration', async () => {
    const last = { at: SINCE, by: 'SIGHUP', result: 'applied', detail: null, applied: ['/log/level'] } as const;
    const lastReload = () => ({ ...last, needsRestart: ['/node/id'] });
    const node = fakeManagement();
    const { ask } = await rig({}, { ...node, configuration: { ...node.configuration, lastReload } });
    expect((await ask('GET', PATH)).json()).toEqual({ last_reload: { ...last, needs_restart: ['/node/id'] } });
    expect((await (await rig()).ask('GET', PATH)).json()).toEqual({ last_reload: null });
  });
});
