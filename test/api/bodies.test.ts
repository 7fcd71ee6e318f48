import { describe, expect, test } from 'vitest';
import { type Asked, rig } from './rig.js';

const PACKET = { src: '10.0.0.1', dst: '10.0.0.2', proto: 'tcp', dst_port: 443 };

const POLICY_WRITES = [
  ['PUT', '/api/v1/policy'],
  ['POST', '/api/v1/policies'],
  ['PUT', '/api/v1/policies/x1'],
  ['PUT', '/api/v1/policies/by-name/x1'],
] as const;
const SMALL_WRITES = [
  ['PUT', '/api/v1/settings/performance-mode'],
  ['POST', '/api/v1/integrations'],
  ['PUT', '/api/v1/integrations/x1'],
  ['POST', '/api/v1/tokens'],
  ['POST', '/api/v1/policy/explain'],
  ['PUT', '/api/v1/settings/tls-intercept-ca'],
] as const;

type Bad = {
  readonly name: string;
  readonly asked: Asked;
  readonly status: number;
  readonly type: string;
  readonly pointers?: string[];
};

const json = { 'content-type': 'application/json' };
const invalidBody = (name: string, asked: Asked, pointer = ''): Bad => ({
  name,
  asked,
  status: 400,
  type: 'invalid_body',
  pointers: [pointer],
});

const unread: Bad[] = [
  invalidBody('no body', { headers: json }),
  invalidBody('an empty text', { body: '' }),
  ...[
    'text/plain',
    'text/plain; x=application/json',
    'application/json\tx',
    'application/jsonp',
    'multipart/form-data',
    'application/x-www-form-urlencoded',
    'application/json; charset=utf-16',
    'application/merge-patch+json',
    'application/json, text/plain',
    ' ',
  ].map((type) => ({
    name: `the content type ${JSON.stringify(type)}`,
    asked: { body: '{}', headers: { 'content-type': type } },
    status: 415,
    type: 'unsupported_media_type',
  })),
  {
    name: 'a content encoding',
    asked: { body: '{}', headers: { ...json, 'content-encoding': 'gzip' } },
    status: 415,
    type: 'unsupported_media_type',
  },
];

const malformed: Bad[] = [
  invalidBody('truncated JSON', { body: '{"enabled":tr' }),
  invalidBody('two JSON documents', { body: '{}{}' }),
  invalidBody('a NUL byte after the JSON', { body: '{}\0' }),
  invalidBody('a NUL byte in a string', { body: '{"enabled":"\0"}' }),
  invalidBody('bytes that are not UTF-8', { body: Buffer.from([0x22, 0xff, 0x22]) }),
  invalidBody('a byte order mark', { body: '\ufeff{}' }),
  invalidBody('a repeated JSON key', { body: '{"enabled":true,"enabled":false}' }, '/enabled'),
  invalidBody(
    'a repeated JSON key that is written with an escape',
    { body: '{"a":{"enabled":true,"\\u0065nabled":false}}' },
    '/a/enabled',
  ),
  invalidBody('the JSON key __proto__', { body: '{"enabled":true,"__proto__":{"enabled":false}}' }, '/__proto__'),
  invalidBody('the JSON key __proto__ in a nested object', { body: '{"a":[{"__proto__":1}]}' }, '/a/0/__proto__'),
];
const deep = { body: `{"a":${'['.repeat(500_000)}${']'.repeat(500_000)}}` };

const refusalOf = async (method: string, path: string, asked: Asked) => {
  const { ask, node } = await rig();
  const { statusCode, headers, body } = await ask(method, path, asked);
  const document = JSON.parse(body) as { type: string; error: string; problems?: { pointer: string }[] };
  expect(headers['content-type']).toBe('application/problem+json; charset=utf-8');
  expect(document.error).toMatch(/\.$/);
  expect(body).not.toMatch(/node_modules|\.[jt]s\b|\n\s+at /);
  expect(node.changes).toEqual([]);
  return { status: statusCode, type: document.type, pointers: document.problems?.map(({ pointer }) => pointer) };
};
const expected = ({ status, type, pointers }: Omit<Bad, 'name' | 'asked'>) => ({
  status,
  type: `urn:weir:error:${type}`,
  pointers,
});

describe.each([...POLICY_WRITES, ...SMALL_WRITES])('request body of %s %s', (method, path) => {
  test.each(unread)(
    'a policy write or other write request is refused if its body is empty, or has a wrong content type or an encoding: $name',
    async ({ asked, ...bad }) => {
      expect(await refusalOf(method, path, asked)).toEqual(expected(bad));
    },
  );
});

describe.each(SMALL_WRITES)('request body of %s %s', (method, path) => {
  test.each(malformed)(
    'a write request other than a policy write is refused if its body is not one valid JSON text: $name',
    async ({ asked, ...bad }) => {
      expect(await refusalOf(method, path, asked)).toEqual(expected(bad));
    },
  );

  test('the body of a write request other than a policy write is refused if the JSON text is deeply nested', async () => {
    expect(await refusalOf(method, path, deep)).toMatchObject({ status: 400, type: 'urn:weir:error:invalid_body' });
  });

  test('the body of a write request other than a policy write is refused with 413 if it is larger than 1 MiB', async () => {
    const asked = { body: `{"a":"${'x'.repeat(1024 * 1024)}"}` };
    expect(await refusalOf(method, path, asked)).toEqual(expected({ status: 413, type: 'body_too_large' }));
  });

  test.each(['null', '[]', '"x"', '7'])(
    'the body of a write request is refused if it is the JSON value %s instead of an object',
    async (body) => {
      expect(await refusalOf(method, path, { body })).toEqual(
        expected({ status: 400, type: 'invalid_request', pointers: [''] }),
      );
    },
  );

  test('the body of a write request other than a policy write is refused with the JSON pointer of an unknown JSON member', async () => {
    const { status, pointers } = await refusalOf(method, path, { body: '{"a/b~c":1}' });
    expect(status).toBe(400);
    expect(pointers).toContain('/a~1b~0c');
  });
});

describe.each(POLICY_WRITES)('policy body of %s %s', (method, path) => {
  test('the body of a policy write is passed to the node without being parsed, even if it is invalid JSON', async () => {
    const { ask, node } = await rig();
    await ask(method, path, { body: '{"a":1,"a":' });
    expect(node.changes.map(({ call }) => call)).toEqual(['policies.write']);
  });

  test('the body of a policy write is refused with 413 if it is larger than 64 MiB', async () => {
    const asked = { body: Buffer.alloc(65 * 1024 * 1024, 0x20) };
    expect(await refusalOf(method, path, asked)).toEqual(expected({ status: 413, type: 'body_too_large' }));
  });
});

test.each([
  ['PUT', '/api/v1/settings/performance-mode', { enabled: 'yes' }, ['/enabled']],
  ['PUT', '/api/v1/settings/performance-mode', {}, ['/enabled']],
  ['POST', '/api/v1/tokens', { subject: 'a b', role: 'root', expires_in: 0 }, ['/expires_in', '/role', '/subject']],
  ['POST', '/api/v1/tokens', { subject: 'a', role: 'admin', expires_in: 1.5, more: 1 }, ['/expires_in', '/more']],
  [
    'POST',
    '/api/v1/integrations',
    { name: '../x', kind: 'nomad', api_server_url: 'http://kube', ca_cert_pem: 'x', service_account_token: 'a b' },
    ['/api_server_url', '/ca_cert_pem', '/kind', '/name', '/service_account_token'],
  ],
  [
    'POST',
    '/api/v1/policy/explain',
    { src: '10.0.0.256', dst: '::1::', proto: 'tcp', src_port: 65_536 },
    ['/dst', '/src', '/src_port'],
  ],
  ['POST', '/api/v1/policy/explain', { src: '10.0.0.1', dst: '10.0.0.2', proto: 'any' }, ['/proto']],
  ['POST', '/api/v1/policy/explain', { src: '10.0.0.1', query: 'a..b' }, ['/query']],
  ['POST', '/api/v1/policy/explain', { src: '10.0.0.1', query: `${'a'.repeat(64)}.test` }, ['/query']],
  ...(
    [
      ['a..b', `${'a'.repeat(64)}.test`, 'a b', '/a\\b'],
      ['.', '192.0.2.7', 'a..b:443', '/a?b'],
      [`${'a.'.repeat(126)}bb`, '', 'https://a.test', 'a'],
    ] as const
  ).map(
    ([hostname, sni, host, path]) =>
      [
        'POST',
        '/api/v1/policy/explain',
        { ...PACKET, hostname: hostname === '.' ? '..' : hostname, sni, http: { host, path } },
        ['/hostname', '/http/host', '/http/path', '/sni'],
      ] as const,
  ),
  [
    'POST',
    '/api/v1/policy/explain',
    { policy: { source_groups: [{ id: 7 }] }, src: '10.0.0.1', query: 'a.test' },
    ['/policy/source_groups/0/id', '/policy/source_groups/0/mode', '/policy/source_groups/0/sources'],
  ],
] as const)(
  'the API request %s %s with the invalid body %j is refused with one JSON pointer for each problem',
  async (method, path, body, pointers) => {
    const found = await refusalOf(method, path, { body: JSON.stringify(body) });
    expect({ ...found, pointers: found.pointers?.sort() }).toEqual(
      expected({ status: 400, type: 'invalid_request', pointers: [...pointers] }),
    );
  },
);
