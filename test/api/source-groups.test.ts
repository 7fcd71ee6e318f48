import { expect, test } from 'vitest';
import type { PolicyOutcome } from '#contracts/policy/policy-write.js';
import { ETAG, fakeManagement, GROUP, RECORD, STORED, TOKENS } from './fake-management.js';
import { rig } from './rig.js';

const PATH = `/api/v1/policies/${RECORD.id}/source-groups/lan`;
const WARNING = { pointer: '/sources/cidrs/0', code: 'host_bits', message: 'Bits are ignored.' } as const;
const WRITTEN: PolicyOutcome = {
  kind: 'written',
  created: false,
  stored: { ...STORED, body: Buffer.from(GROUP) },
  generation: 8,
  warnings: [WARNING],
  proof: null,
};

const answering = (outcome: PolicyOutcome) => {
  const node = fakeManagement();
  node.answer.policyWrite = () => outcome;
  return rig({}, node);
};

test('GET of a source group returns the stored bytes of the group, with the ETag of the policy', async () => {
  const { ask } = await rig();
  const answer = await ask('GET', PATH, { token: TOKENS.readonly });
  expect([answer.statusCode, answer.body, answer.headers.etag, answer.headers['weir-generation']]).toEqual([
    200,
    GROUP,
    ETAG,
    '7',
  ]);
  expect((await ask('GET', PATH, { headers: { 'if-none-match': ETAG } })).statusCode).toBe(304);
});

test('GET of a source group returns 404 if the policy does not exist, and 503 if the policy thread fails', async () => {
  const node = fakeManagement();
  node.reads.stored = null;
  const { ask } = await rig({}, node);
  expect((await ask('GET', PATH)).json().type).toBe('urn:weir:error:not_found');
  const gone = { kind: 'refused', code: 'feature_unavailable', detail: 'the policy thread died' } as const;
  const broken = await rig({}, { ...node, policies: { ...node.policies, readGroup: async () => gone } });
  expect((await broken.ask('GET', PATH)).statusCode).toBe(503);
});

test.each([
  ['PUT', '{"sources":{}}', 'put'],
  ['DELETE', undefined, 'delete'],
] as const)(
  'the request %s for the path of a source group asks the node to write only this source group',
  async (method, body, operation) => {
    const { ask, node } = await rig();
    await ask(method, `/api/v1/policies/${RECORD.id}/source-groups/a%2Fb%20%C3%A4?dry_run=true&activate=false`, {
      ...(body === undefined ? {} : { body }),
      headers: { 'if-match': ETAG },
    });
    expect(node.changes.map((change) => change.with)).toEqual([
      {
        operation,
        target: { by: 'id', id: RECORD.id },
        sourceGroup: 'a/b ä',
        form: 'envelope',
        body: body === undefined ? new Uint8Array() : Buffer.from(body),
        ifMatch: ETAG,
        ifNoneMatch: undefined,
        activate: false,
        dryRun: true,
        mayWatch: true,
        author: 'alice',
      },
    ]);
  },
);

test('PUT of a source group returns the policy record, the warnings and the written source group', async () => {
  const { ask } = await answering(WRITTEN);
  const answer = await ask('PUT', PATH, { body: GROUP });
  expect([answer.statusCode, answer.headers.etag, answer.headers['weir-generation'], answer.headers.location]).toEqual([
    200,
    ETAG,
    '8',
    undefined,
  ]);
  expect(answer.json()).toEqual({ ...RECORD, warnings: [WARNING], proof: null, source_group: JSON.parse(GROUP) });
});

test('PUT of a new source group returns 201 and a Location header with the path of the source group', async () => {
  const { ask } = await answering({ ...WRITTEN, created: true });
  const answer = await ask('PUT', `/api/v1/policies/${RECORD.id}/source-groups/a%2Fb`, { body: GROUP });
  expect([answer.statusCode, answer.headers.location]).toEqual([
    201,
    `/api/v1/policies/${RECORD.id}/source-groups/a%2Fb`,
  ]);
});

test('DELETE of a source group returns 204, with the new ETag and the codes of warnings in headers', async () => {
  const { ask } = await answering({ ...WRITTEN, stored: { ...STORED, body: Buffer.alloc(0) } });
  const answer = await ask('DELETE', PATH);
  expect([answer.statusCode, answer.body, answer.headers.etag, answer.headers['weir-generation']]).toEqual([
    204,
    '',
    ETAG,
    '8',
  ]);
  expect(answer.headers['weir-warnings']).toBe('host_bits');
});

test.each([
  ['PUT', GROUP, JSON.parse(GROUP)],
  ['DELETE', undefined, null],
] as const)(
  'a dry run of the request %s for a source group returns the result that the real write would store',
  async (method, body, shown) => {
    const stored = { ...STORED, body: Buffer.from(body ?? '') };
    const { ask } = await answering({
      kind: 'checked',
      stored,
      warnings: [WARNING],
      programLines: 12,
      change: { generation: 0 },
      diff: null,
      assertions: [],
      proof: null,
    });
    const answer = await ask(method, `${PATH}?dry_run=true`, body === undefined ? {} : { body });
    expect([answer.statusCode, answer.json()]).toEqual([
      200,
      {
        ...RECORD,
        dry_run: true,
        warnings: [WARNING],
        program_lines: 12,
        proof: null,
        diff: null,
        assertions: [],
        source_group: shown,
      },
    ]);
  },
);

test('a write of a source group requires the role admin, and a group id in the path', async () => {
  const { ask, node } = await rig();
  expect((await ask('PUT', PATH, { body: GROUP, token: TOKENS.readonly })).statusCode).toBe(403);
  expect((await ask('DELETE', PATH, { token: TOKENS.readonly })).statusCode).toBe(403);
  const nameless = await ask('PUT', `/api/v1/policies/${RECORD.id}/source-groups/`, { body: GROUP });
  expect(nameless.json().type).toBe('urn:weir:error:invalid_url');
  expect(node.changes).toEqual([]);
});

test('GET of the members of a source group returns a page of addresses and networks, and the objects that own them', async () => {
  const { ask, node } = await rig();
  const owner = { integration: 'prod', kind: 'pod', namespace: 'shop', name: 'web-1' } as const;
  const ofNode = { integration: 'prod', kind: 'node', namespace: null, name: 'n7' } as const;
  const networks = [{ prefix: { address: 0x0af4_0700, length: 24 }, owner: ofNode }];
  node.reads.members = { networks, total: 7, members: [{ address: 0x0af4_0107, owner }], next: 0x0af4_0107 };
  const answer = await ask('GET', `${PATH}/members?limit=1&after=10.244.1.6`, { token: TOKENS.readonly });
  expect([answer.statusCode, answer.json()]).toEqual([
    200,
    {
      items: [{ address: '10.244.1.7', ...owner }],
      networks: [{ cidr: '10.244.7.0/24', ...ofNode }],
      total: 7,
      next: '10.244.1.7',
    },
  ]);
  await ask('GET', `${PATH}/members`);
  expect(node.reads.asked).toEqual([
    { policy: RECORD.id, group: 'lan', after: 0x0af4_0106, limit: 1 },
    { policy: RECORD.id, group: 'lan', after: null, limit: 100 },
  ]);
});

test('GET of the members of a source group refuses an invalid page, a policy that is not active, and an unknown group', async () => {
  const { ask, node } = await rig();
  for (const query of ['limit=0', 'limit=1001', 'after=10.0.0', 'after=fd00::1%25eth0', 'after=fd00::g', 'cursor=1'])
    expect((await ask('GET', `${PATH}/members?${query}`)).json().type).toBe('urn:weir:error:invalid_query');
  node.reads.members = { kind: 'refused', code: 'policy_not_active', detail: 'no' };
  expect((await ask('GET', `${PATH}/members`)).statusCode).toBe(409);
  node.reads.members = null;
  expect((await ask('GET', `${PATH}/members`)).json().type).toBe('urn:weir:error:not_found');
});
