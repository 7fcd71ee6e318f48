import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { errorsPage } from '../../scripts/pages/errors-page.js';
import { fakeManagement, RECORD, SINCE, TOKENS } from './fake-management.js';
import { type Asked, rig } from './rig.js';

type Told = {
  readonly detail: string;
  readonly problems?: readonly { pointer: string; code: string; message: string }[];
};
const told = async (method: string, path: string, asked: Asked = {}) => {
  const { ask } = await rig();
  const { detail, problems = [] } = (await ask(method, path, asked)).json<Told>();
  return { detail, problems: problems.map(({ pointer, code, message }) => `${code} ${pointer}: ${message}`) };
};

test('docs/errors.md lists every problem code that occurs in the sources', () => {
  const page = errorsPage({});
  const folders = ['api', 'policy', 'policies', 'kubernetes/operations', 'service-plane/ca', 'actors'];
  const operations = [
    'cluster/writes/enforced-by.ts',
    ...['cluster', 'dataplane', 'dns', 'service-plane'].map((room) => `${room}/operations.ts`),
  ];
  const files = folders.flatMap((folder) =>
    readdirSync(new URL(`../../src/${folder}/`, import.meta.url), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.ts'))
      .map((file) => `${folder}/${file}`),
  );
  const codes = [...files, ...operations].flatMap((file) => {
    const text = readFileSync(new URL(`../../src/${file}`, import.meta.url), 'utf8');
    const literals =
      /(?:code: |\.(?:add|addAt)\([^;]*?, |new ApiError\()'([a-z0-9_]+)'|code: [^,;}]*\? '([a-z0-9_]+)' : '([a-z0-9_]+)'/g;
    return [...text.matchAll(literals)].flatMap(([, ...found]) => found.filter((code) => code !== undefined));
  });
  expect(new Set(codes).size).toBeGreaterThan(50);
  expect([...new Set(codes)].filter((code) => !new RegExp(`^- \`${code}\`(?: \\(\\d+\\))?: `, 'm').test(page))).toEqual(
    [],
  );
});

test('docs/errors.md describes the response header Weir-Warnings', () => {
  expect(errorsPage({})).toContain('have the header `Weir-Warnings`: the codes of this list');
});

describe('explain request', () => {
  const packet = { src: '10.0.0.7', dst: '192.0.2.10' };
  const asking = async (body: object) => (await told('POST', '/api/v1/policy/explain', { body })).problems;
  const NEEDED = 'This field is required for this protocol.';

  test.each(['tcp', 'UDP', 33, 132, 136])(
    'an explain request for the protocol %s is refused without a destination port',
    async (proto) => {
      expect(await asking({ ...packet, proto })).toEqual([`required /dst_port: ${NEEDED}`]);
      expect(await asking({ ...packet, proto, dst_port: 0 })).toEqual([]);
    },
  );
  test('an explain request for ICMP is refused without an ICMP type, and for GRE (protocol 47) is accepted without type and port', async () => {
    expect(await asking({ ...packet, proto: 'icmp' })).toEqual([`required /icmp_type: ${NEEDED}`]);
    expect(await asking({ ...packet, proto: 'icmp', icmp_type: 0 })).toEqual([]);
    expect(await asking({ ...packet, proto: 47 })).toEqual([]);
  });
  test('an explain request without a source port is passed to the node with `sourcePortAssumed: true`', async () => {
    const { ask, node } = await rig({}, asked());
    await ask('POST', '/api/v1/policy/explain', { body: { ...packet, proto: 'tcp', dst_port: 1 } });
    expect(node.changes).toMatchObject([{ with: { query: { sourcePortAssumed: true } } }]);
  });
  test('an explain request with no protocol, no destination address and a source address with a zone gets one problem for each of these faults', async () => {
    expect(await asking({ src: 'fe80::1%eth0' })).toEqual([
      'invalid_value /src: Write an address of IPv6 such as "2001:db8::7": a zone id names an interface of one machine, so a policy has none.',
      'required /dst: This field is required.',
      'required /proto: This field is required.',
    ]);
  });
  test('an explain request with the unknown field dest_port gets a problem that suggests dst_port', async () => {
    expect(await asking({ ...packet, proto: 47, dest_port: 1 })).toEqual([
      'unknown_field /dest_port: There is no field "dest_port" here (did you mean "dst_port"?).',
    ]);
  });
  function asked() {
    const node = fakeManagement();
    return Object.assign(node, {
      policies: {
        ...node.policies,
        explain: async (question: unknown) => {
          node.changes.push({ call: 'explain', with: question });
          return { kind: 'refused', code: 'feature_unavailable', detail: 'down' } as const;
        },
      },
    });
  }
});

describe('detail text of an error', () => {
  test.each([
    ['PUT', '/api/v1/settings/performance-mode'],
    ['PUT', '/api/v1/policy'],
  ])(
    'the detail text of an error for the request %s %s without a body says only that the body is empty',
    async (method, path) => {
      const { detail } = await told(method, path, { headers: { 'content-type': 'application/json' } });
      expect(detail).toBe('The body is empty; JSON is required.');
    },
  );
  test('the detail text of an error contains "the body" if the JSON pointer of the problem is empty', async () => {
    expect((await told('PUT', '/api/v1/settings/performance-mode', { body: '[]' })).detail).toBe(
      'the body: Must be an object, not an array.',
    );
    const { ask, node } = await rig();
    node.answer.policyWrite = () => ({ kind: 'refused', code: 'invalid_policy', detail: ': Must be an object.' });
    expect((await ask('PUT', '/api/v1/policy', { body: '[]' })).json<Told>().detail).toBe(
      'the body: Must be an object.',
    );
  });
  test('the detail text of an error for status 412 tells the client to read the policy again and to write with the new ETag', async () => {
    const { ask, node } = await rig();
    node.answer.policyWrite = () => ({ kind: 'refused', code: 'precondition_failed', detail: 'the ETag is "x"' });
    expect((await ask('PUT', '/api/v1/policy', { body: '{}' })).json<Told>().detail).toBe(
      'the ETag is "x"; read it again, and write with the new ETag in If-Match',
    );
  });
  test('the detail text of an error for a refused Host header names the host and the configuration key api.allowed_hosts', async () => {
    expect((await told('GET', '/health', { headers: { host: 'gw.example:8080' } })).detail).toBe(
      'gw.example is not a name of this node: use the address that the node listens on, or add the name to api.allowed_hosts',
    );
  });
  test('the detail text of an error for status 415 names the required content type', async () => {
    const { detail } = await told('PUT', '/api/v1/policy', { body: '{}', headers: { 'content-type': 'text/plain' } });
    expect(detail).toContain('`Content-Type: application/json`');
  });
  test.each([
    [
      '/',
      '/ is not a path of this API; the paths are in /openapi/service-v1.json, and /ready reports the state of the node',
    ],
    [
      '/api/v1/policy/',
      '/api/v1/policy/ is not a path of this API; write it without the slash at its end: /api/v1/policy',
    ],
    ['/ready/', '/ready/ is not a path of this API; write it without the slash at its end: /ready'],
    [`/api/v1/policies/${RECORD.id}/`, expect.stringContaining('write it without the slash at its end')],
  ])(
    'the detail text of an error for the unknown path GET %s names the correct path, or the document that lists all paths',
    async (path, detail) => {
      const { ask } = await rig();
      const answer = await ask('GET', path);
      expect([answer.statusCode, answer.json<Told>().detail]).toEqual([404, detail]);
    },
  );
});

test.each([
  [
    'GET',
    '/api/v1/policies/',
    'invalid_parameter /id: Must not be empty; the path of a collection does not end with a slash.',
  ],
  ['POST', '/api/v1/policies?dry_run=1', 'invalid_parameter ?dry_run: Must be true or false.'],
  [
    'POST',
    '/api/v1/policies?dry_run=true&dry_run=true',
    'invalid_parameter ?dry_run: This parameter must be given once only.',
  ],
  [
    'POST',
    '/api/v1/policies?dryrun',
    'unknown_parameter ?dryrun: There is no parameter "dryrun" here (did you mean "dry_run"?).',
  ],
  ['GET', '/api/v1/policies?limit=1', 'unknown_parameter ?limit: There is no parameter "limit" here.'],
  ['GET', '/api/v1/audit/findings?limit=many', 'invalid_parameter ?limit: Must be a whole number from 1 to 1000.'],
  [
    'GET',
    '/api/v1/audit/findings?since=today',
    'invalid_parameter ?since: Must be a time in UTC such as 2026-01-31T12:00:00Z.',
  ],
  [
    'GET',
    '/api/v1/audit/findings?finding_type=x',
    'invalid_parameter ?finding_type: Must be one of l4_deny, icmp_deny, dns_deny, tls_deny, http_deny, auth_denied, config_change, gap, cluster_contradiction, address_shared, value_unreadable.',
  ],
])(
  'the API request %s %s is refused with a problem that names the invalid parameter and explains the fault',
  async (method, path, problem) => {
    const { problems } = await told(method, path, method === 'POST' ? { body: '{}' } : {});
    expect(problems).toEqual([problem]);
  },
);

test('a request with a readonly token gets only the entry of this token from the list of tokens', async () => {
  const record = { subject: 's', role: 'readonly' as const, created_at: SINCE, expires_at: null, revoked_at: null };
  const node = fakeManagement();
  const tokens = [
    { ...record, id: 'readonly' },
    { ...record, id: 't-1' },
  ];
  const { ask } = await rig({}, { ...node, tokens: { ...node.tokens, list: () => tokens } });
  const ids = async (token: string) =>
    (await ask('GET', '/api/v1/tokens', { token })).json<{ items: { id: string }[] }>().items.map(({ id }) => id);
  expect([await ids(TOKENS.readonly), await ids(TOKENS.admin)]).toEqual([['readonly'], ['readonly', 't-1']]);
});
