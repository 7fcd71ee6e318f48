import { describe, expect, test } from 'vitest';
import { singletonView } from '#api/policies/policy-json.js';
import type { CommitInCluster, PolicyOutcome, PolicyWritten } from '#contracts/policy/policy-write.js';
import { readPolicy } from '#policy/check/read-policy.js';
import { BODY, ETAG, fakeManagement, PROOF, RECORD, STORED, TOKENS } from './fake-management.js';
import { rig } from './rig.js';

const ENVELOPE = '{"mode":"enforce","name":"office","policy":{}}';
const WARNING = { pointer: '/policy', code: 'host_bits', message: 'Bits are ignored.' } as const;

const written = (
  created: boolean,
  warnings: PolicyWritten['warnings'],
  proof: PolicyWritten['proof'],
): PolicyOutcome => ({
  kind: 'written',
  created,
  stored: STORED,
  generation: 8,
  warnings,
  proof,
});
const answering = (outcome: PolicyOutcome) => {
  const node = fakeManagement();
  node.answer.policyWrite = () => outcome;
  return rig({}, node);
};

describe('policy read', () => {
  test('a read of the active policy returns the mode of its envelope (stored document with name and mode) in every source group, and all other bytes unchanged', async () => {
    const { ask } = await rig();
    const answer = await ask('GET', '/api/v1/policy');
    expect(answer.body).toBe(
      '{"default_policy":"deny","source_groups":[{"mode":"enforce","id":"lan","sources":{"ips":["10.0.0.7"]}}]}',
    );
    expect([answer.headers.etag, answer.headers['weir-generation'], answer.headers['content-type']]).toEqual([
      ETAG,
      '7',
      'application/json; charset=utf-8',
    ]);
  });

  test('a policy read without an active policy returns an empty policy with the ETag "none"', async () => {
    const node = fakeManagement();
    node.reads.stored = null;
    const { ask } = await rig({}, node);
    const answer = await ask('GET', '/api/v1/policy');
    expect([answer.statusCode, answer.body, answer.headers.etag]).toEqual([200, '{}', '"none"']);
  });

  test.each([`/api/v1/policies/${RECORD.id}`, '/api/v1/policies/by-name/Office'])(
    'a read of a policy by the path %s returns the policy record and the stored body',
    async (path) => {
      const { ask } = await rig();
      const answer = await ask('GET', path);
      expect(answer.json()).toEqual({ ...RECORD, policy: JSON.parse(BODY) });
      expect([answer.headers.etag, answer.headers['weir-generation']]).toEqual([ETAG, '7']);
    },
  );

  test('a read of the list of policies returns every policy record without the stored body', async () => {
    const { ask } = await rig();
    expect((await ask('GET', '/api/v1/policies')).json()).toEqual({ items: [RECORD] });
  });

  test.each(['/api/v1/policies/nobody', '/api/v1/policies/by-name/nobody'])(
    'a read of a policy by the path %s returns 404 if the policy does not exist',
    async (path) => {
      const node = fakeManagement();
      node.reads.stored = null;
      const { ask } = await rig({}, node);
      expect((await ask('GET', path)).json()).toEqual({
        type: 'urn:weir:error:not_found',
        title: 'Not found',
        status: 404,
        detail: 'there is no such policy',
        error: 'there is no such policy.',
      });
    },
  );

  test.each(['/api/v1/policy', `/api/v1/policies/${RECORD.id}`, '/api/v1/policies/by-name/office'])(
    'a read of a policy by the path %s returns 304 if If-None-Match contains the current ETag',
    async (path) => {
      const { ask } = await rig();
      const known = await ask('GET', path, { headers: { 'if-none-match': `"old", W/${ETAG}` } });
      expect([known.statusCode, known.body, known.headers.etag]).toEqual([304, '', ETAG]);
      expect((await ask('GET', path, { headers: { 'if-none-match': '"old"' } })).statusCode).toBe(200);
    },
  );
});

describe('singletonView', () => {
  const view = (body: string) =>
    Buffer.from(singletonView({ record: { ...RECORD, mode: 'audit' }, body: Buffer.from(body) })).toString();

  test.each([
    ['{}', '{}'],
    ['{"source_groups":[]}', '{"source_groups":[]}'],
    [
      '{ "source_groups" : [ {"id":"}]{[\\"","rules":[{"id":"r","match":{}}]} , {"id":"b"}], "default_policy":"deny"}',
      '{ "source_groups" : [ {"mode":"audit","id":"}]{[\\"","rules":[{"id":"r","match":{}}]} , {"mode":"audit","id":"b"}], "default_policy":"deny"}',
    ],
    ['{"source\\u005fgroups":[{"id":"ü\\\\"}]}', '{"source\\u005fgroups":[{"mode":"audit","id":"ü\\\\"}]}'],
    [
      '{"default_policy":"source_groups","source_groups":[{"id":"a"}]}',
      '{"default_policy":"source_groups","source_groups":[{"mode":"audit","id":"a"}]}',
    ],
  ])(
    '`singletonView` (stored policy as JSON without name and mode) writes the mode of the policy into each source group of the document %s',
    (body, expected) => {
      expect(view(body)).toBe(expected);
    },
  );

  test('`singletonView` returns a policy that was written without name and mode (singleton form) unchanged', () => {
    const body = Buffer.from('{"source_groups":[{"id":"a","mode":"enforce"}]}');
    expect(singletonView({ record: { ...RECORD, form: 'singleton' }, body })).toBe(body);
  });

  test('`singletonView` returns for an envelope (policy document with name and mode) a text without both that `readPolicy` reads as the same policy', () => {
    const policy = '{"source_groups":[{"id":"g","sources":{"ips":["10.0.0.1"]}}]}';
    const parts = { integrations: undefined, dns: true, servicePlane: true, recordMode: 'audit' } as const;
    const context = { ...parts, parseCertificate: () => undefined, fallback: 'deny' } as const;
    const back = readPolicy(view(policy), { ...context, form: 'singleton' });
    const origin = readPolicy(`{"mode":"audit","policy":${policy}}`, { ...context, form: 'envelope' });
    expect(back.ok && back.policy).toEqual(origin.ok && origin.policy);
    expect(origin.ok && origin.policy.groups.map(({ mode }) => mode)).toEqual(['audit']);
  });
});

describe('policy write', () => {
  test.each([
    ['POST', '/api/v1/policies', { by: 'new' }, 'envelope'],
    ['PUT', `/api/v1/policies/${RECORD.id}`, { by: 'id', id: RECORD.id }, 'envelope'],
    ['PUT', '/api/v1/policies/by-name/a%2Fb%20c', { by: 'name', name: 'a/b c' }, 'envelope'],
    ['PUT', '/api/v1/policy', { by: 'active' }, 'singleton'],
    ['PUT', `/api/v1/policies/${RECORD.id}`, { by: 'id', id: RECORD.id }, 'singleton', '&form=singleton'],
    ['PUT', '/api/v1/policies/by-name/home', { by: 'name', name: 'home' }, 'singleton', '&form=singleton'],
  ] as const)(
    'the policy write %s %s passes the received body to the node unchanged, with the target policy, the form and the preconditions',
    async (method, path, target, form, more: string = '') => {
      const { ask, node } = await rig();
      const body = '{ "mode": "enforce",  "policy": {"x": 1.0} }';
      await ask(method, `${path}?activate=false&dry_run${more}`, { body, headers: { 'if-match': '"a", "b"' } });
      expect(node.changes).toEqual([
        {
          call: 'policies.write',
          with: {
            operation: 'put',
            target,
            form,
            body: Buffer.from(body),
            ifMatch: '"a", "b"',
            ifNoneMatch: undefined,
            activate: false,
            dryRun: true,
            mayWatch: true,
            author: 'alice',
          },
        },
      ]);
    },
  );

  test.each([
    ['', false],
    ['?dry_run=true', true],
  ])(
    'a POST to the path `/activate` of a policy, with the query "%s", asks the node to activate the policy, and passes no body',
    async (query, dryRun) => {
      const { ask, node } = await rig();
      const answer = await ask('POST', `/api/v1/policies/${RECORD.id}/activate${query}`, {
        headers: { 'if-match': ETAG },
      });
      expect([answer.statusCode, answer.headers.etag, answer.json().warnings]).toEqual([200, ETAG, []]);
      expect(node.changes).toMatchObject([
        {
          with: {
            operation: 'activate',
            target: { by: 'id', id: RECORD.id },
            body: new Uint8Array(),
            ifMatch: ETAG,
            dryRun,
          },
        },
      ]);
    },
  );

  const LONGEST = 'n'.repeat(253);
  test.each(['', ' ', '\u00a0', 'a\tb', 'a\nb', '\u0000', '\u200b', '\u2028', '\u{1f600}'.repeat(254), `${LONGEST}n`])(
    'a policy write with the name %j in the path is refused, and nothing is written',
    async (name) => {
      const { ask, node } = await rig();
      const answer = await ask('PUT', `/api/v1/policies/by-name/${encodeURIComponent(name)}`, { body: ENVELOPE });
      expect([answer.statusCode, node.changes]).toEqual([400, []]);
      expect(answer.json().problems).toMatchObject([{ pointer: '/name', code: 'invalid_parameter' }]);
    },
  );

  test.each([LONGEST, ` ${LONGEST} `, '\u{1f600}'.repeat(253), 'a/b?#%', 'é'])(
    'a policy write with the name %j in the path is accepted',
    async (name) => {
      const { ask, node } = await rig();
      const answer = await ask('PUT', `/api/v1/policies/by-name/${encodeURIComponent(name)}`, { body: ENVELOPE });
      expect(answer.statusCode).toBe(200);
      expect(node.changes).toMatchObject([{ with: { target: { by: 'name', name } } }]);
    },
  );

  test('a policy write that creates a record returns 201 with a Location header, the ETag and the warnings', async () => {
    const { ask } = await answering(written(true, [WARNING], PROOF));
    const answer = await ask('POST', '/api/v1/policies', { body: ENVELOPE });
    expect([
      answer.statusCode,
      answer.headers.location,
      answer.headers.etag,
      answer.headers['weir-generation'],
      answer.headers['weir-warnings'],
    ]).toEqual([201, `/api/v1/policies/${RECORD.id}`, ETAG, '8', undefined]);
    expect(answer.json()).toEqual({ ...RECORD, warnings: [WARNING], proof: PROOF, policy: JSON.parse(BODY) });
  });

  test.each([
    [true, 201, `/api/v1/policies/${RECORD.id}`],
    [false, 200, undefined],
  ])(
    'a policy write by name returns a Location header only for a new record (created: %s, status: %i)',
    async (created, status, location) => {
      const { ask } = await answering(written(created, [], PROOF));
      const answer = await ask('PUT', '/api/v1/policies/by-name/office', { body: ENVELOPE });
      expect([answer.statusCode, answer.headers.location]).toEqual([status, location]);
    },
  );

  test('a policy write in singleton form (without name and mode) returns only the policy, and the codes of warnings in the header Weir-Warnings', async () => {
    const { ask } = await answering(written(true, [WARNING, WARNING, { ...WARNING, code: 'not_enforced' }], null));
    const answer = await ask('PUT', '/api/v1/policy', { body: '{}' });
    expect([answer.statusCode, answer.body, answer.headers.etag, answer.headers['weir-generation']]).toEqual([
      200,
      BODY,
      ETAG,
      '8',
    ]);
    expect([answer.headers['weir-warnings'], answer.headers.location]).toEqual(['host_bits, not_enforced', undefined]);
  });

  test.each([
    ['PUT', '/api/v1/policy', '{}'],
    ['POST', '/api/v1/policies', ENVELOPE],
    ['DELETE', `/api/v1/policies/${RECORD.id}`, undefined],
  ])(
    'a dry run of the policy write %s %s returns the policy record that the real write would store',
    async (method, path, body) => {
      const { ask } = await answering({
        kind: 'checked',
        stored: STORED,
        warnings: [WARNING],
        programLines: 12,
        change: { generation: 0 },
        diff: null,
        assertions: [],
        proof: PROOF,
      });
      const answer = await ask(method, `${path}?dry_run=true`, body === undefined ? {} : { body });
      expect(answer.statusCode).toBe(200);
      expect(answer.headers.etag).toBeUndefined();
      expect(answer.json()).toEqual({
        ...RECORD,
        dry_run: true,
        warnings: [WARNING],
        program_lines: 12,
        proof: PROOF,
        diff: null,
        assertions: [],
        policy: JSON.parse(BODY),
      });
    },
  );

  test.each([
    ['PUT', '/api/v1/policy', '{}', 'written'],
    ['POST', '/api/v1/policies', ENVELOPE, 'written'],
    ['POST', `/api/v1/policies/${RECORD.id}/activate`, undefined, 'written'],
    ['DELETE', `/api/v1/policies/${RECORD.id}`, undefined, 'deleted'],
  ] as const)(
    'the policy write %s %s in a cluster returns the headers Weir-Revision and Weir-Nodes',
    async (method, path, body, kind) => {
      const asked = async (cluster: CommitInCluster | undefined) => {
        const outcome = { generation: 9, warnings: [], ...(cluster === undefined ? {} : { cluster }) };
        const { ask } = await answering(
          kind === 'deleted' ? { kind, ...outcome } : { kind, ...outcome, created: false, stored: STORED, proof: null },
        );
        const { statusCode, headers } = await ask(method, path, body === undefined ? {} : { body });
        return [statusCode < 300, headers['weir-revision'], headers['weir-nodes']];
      };
      expect(await asked({ revision: 42, nodes: { ready: 2, members: 3 } })).toEqual([true, '42', '2/3']);
      // `nodes` is null if the members did not rehearse the write, so the response has no votes.
      expect(await asked({ revision: 42, nodes: null })).toEqual([true, '42', undefined]);
      expect(await asked(undefined)).toEqual([true, undefined, undefined]);
    },
  );

  test('a policy write that deletes the active policy returns 204 and the warning none_active in the header Weir-Warnings', async () => {
    const { ask } = await answering({
      kind: 'deleted',
      generation: 9,
      warnings: [{ pointer: '', code: 'none_active', message: 'No policy is active.' }],
    });
    const answer = await ask('DELETE', `/api/v1/policies/${RECORD.id}`, { headers: { 'if-match': ETAG } });
    expect([
      answer.statusCode,
      answer.body,
      answer.headers['weir-generation'],
      answer.headers['weir-warnings'],
    ]).toEqual([204, '', '9', 'none_active']);
  });

  test.each([
    ['invalid_policy', 400],
    ['invalid_body', 400],
    ['not_found', 404],
    ['name_taken', 409],
    ['capacity_exceeded', 409],
    ['precondition_failed', 412],
    ['activation_timeout', 503],
    ['dataplane_unavailable', 503],
    ['store_unavailable', 503],
    ['draining', 503],
  ] as const)(
    'a policy write that the node refuses with the error code %s gets the status %i and a problem document',
    async (code, status) => {
      const problems = [
        { pointer: '/default_policy', code: 'invalid_action' as const, message: 'Must be allow or deny.' },
      ];
      const { ask } = await answering({ kind: 'refused', code, detail: 'the policy was refused', problems });
      const answer = await ask('PUT', '/api/v1/policy', { body: '{}' });
      expect([answer.statusCode, answer.headers['content-type'], answer.headers['retry-after']]).toEqual([
        status,
        'application/problem+json; charset=utf-8',
        status === 503 ? '1' : undefined,
      ]);
      expect(answer.json()).toMatchObject({
        type: `urn:weir:error:${code}`,
        status,
        detail: expect.stringMatching(/^the policy was refused/),
        problems,
      });
    },
  );

  test.each([{ 'if-match': 'unquoted' }, { 'if-match': '"a" "b"' }, { 'if-none-match': '"a"' }])(
    'a policy write with the invalid precondition header %j is refused, and nothing is written',
    async (headers) => {
      const { ask, node } = await rig();
      const answer = await ask('PUT', '/api/v1/policy', { body: '{}', headers: headers });
      expect([answer.statusCode, answer.json().type]).toEqual([400, 'urn:weir:error:invalid_header']);
      expect(node.changes).toEqual([]);
    },
  );

  test('a policy write that fails because of a bug returns 500 without details of the error', async () => {
    const node = fakeManagement();
    node.answer.policyWrite = () => Promise.reject(new Error('/home/weir/src/secret.ts:12 exploded'));
    const { ask } = await rig({}, node);
    const answer = await ask('PUT', '/api/v1/policy', { body: '{}' });
    expect(answer.json()).toEqual({
      type: 'urn:weir:error:internal',
      title: 'Internal error',
      status: 500,
      detail: 'A bug of the service; its log has the cause.',
      error: 'A bug of the service; its log has the cause.',
    });
  });
});

test('GET /api/v1/policy returns 503, without the path of the store, if the store cannot be read', async () => {
  const node = fakeManagement();
  const failure = Object.assign(new Error('read /var/lib/weir/store: EIO'), { code: 'store_unavailable' });
  const { ask } = await rig({}, { ...node, policies: { ...node.policies, read: () => Promise.reject(failure) } });
  const answer = await ask('GET', '/api/v1/policy');
  expect([answer.statusCode, answer.headers['retry-after'], answer.json()]).toEqual([
    503,
    '1',
    {
      type: 'urn:weir:error:store_unavailable',
      title: 'Store unavailable',
      status: 503,
      detail: 'The store cannot read or write now; nothing was changed.',
      error: 'The store cannot read or write now; nothing was changed.',
    },
  ]);
});

test('a policy write gets 503 while the bodies of concurrent policy writes exceed the total size limit', async () => {
  let release: (outcome: PolicyOutcome) => void = () => {};
  const node = fakeManagement();
  node.answer.policyWrite = () =>
    new Promise((resolve) => {
      release = resolve;
    });
  const { ask } = await rig({ limits: { policyBytesInFlight: 10 } }, node);
  const first = ask('PUT', '/api/v1/policy', { body: '{"a":"........"}' });
  await expect.poll(() => node.changes.length).toBe(1);
  const second = await ask('PUT', '/api/v1/policy', { body: '{}' });
  expect([second.statusCode, second.json().type]).toEqual([503, 'urn:weir:error:overloaded']);
  release({ kind: 'written', created: false, stored: STORED, generation: 8, warnings: [], proof: PROOF });
  expect((await first).statusCode).toBe(200);
  const third = ask('PUT', '/api/v1/policy', { body: '{}' });
  await expect.poll(() => node.changes.length).toBe(2);
  release({ kind: 'written', created: false, stored: STORED, generation: 9, warnings: [], proof: PROOF });
  expect((await third).statusCode).toBe(200);
});

test('dry runs with readonly tokens may use at most half of the memory that is allowed for policy bodies', async () => {
  const node = fakeManagement();
  node.answer.policyWrite = () => new Promise<PolicyOutcome>(() => {});
  const { ask } = await rig({ limits: { policyBytesInFlight: 40 } }, node);
  const body = '{"a":"........"}';
  const dryRun = () => ask('PUT', '/api/v1/policy?dry_run=true', { body, token: TOKENS.readonly });
  void dryRun();
  await expect.poll(() => node.changes.length).toBe(1);
  expect((await dryRun()).statusCode).toBe(503);
  void ask('PUT', '/api/v1/policy', { body });
  await expect.poll(() => node.changes.length).toBe(2);
});
