import { writeFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { createInspectedRig, type InspectedRig } from './inspected.js';
import { policyOf } from './rig.js';

const CA = '/api/v1/settings/tls-intercept-ca';
let rig: InspectedRig;
let caFile: string;
beforeAll(async () => {
  rig = await createInspectedRig('intercept');
  await rig.web(443, rig.certificates.good);
  const made = await rig.node.request('POST', `${CA}/generate`);
  if (made.status !== 201) throw new Error(made.text);
  caFile = await rig.file('ca.pem', (await rig.node.request('GET', `${CA}/cert`)).text);
});
afterAll(() => rig?.remove());

const http = (block: Readonly<Record<string, unknown>>, more: Readonly<Record<string, unknown>> = {}) => ({
  match: { proto: 'tcp', dst_ports: [443], tls: { mode: 'intercept', http: block } },
  ...more,
});
const fetch = (path: string, ...options: string[]) =>
  rig.curl(
    ...['--cacert', caFile, '--resolve', `${SERVER_NAME}:443:${ADDRESSES.server}`, '-w', '\n%{http_code}'],
    ...[...options, `https://${SERVER_NAME}${path}`],
  );

test('an allowed HTTP request is forwarded to the server, and a denied request gets status 403 with the name of the source group', async () => {
  await rig.put(
    policyOf([http({ request: { methods: ['GET'], path: { prefix: ['/v1/'] } } })], { default_action: 'deny' }),
  );
  await rig.node.ready();
  const passed = await fetch('/v1/things?x=1', '-H', 'X-Own: 1');
  expect(passed.stderr).toBe('');
  const [body = '', status] = passed.stdout.split('\n');
  expect(status).toBe('200');
  const said = JSON.parse(body) as { method: string; url: string; headers: string[]; from: string };
  expect([said.method, said.url, said.from]).toEqual(['GET', '/v1/things?x=1', `::ffff:${ADDRESSES.client}`]);
  expect(said.headers).toEqual(expect.arrayContaining(['X-Own', '1', 'Host', SERVER_NAME]));
  const denied = await fetch('/other');
  expect(denied.stdout.split('\n').at(-1)).toBe('403');
  expect(JSON.parse(denied.stdout.split('\n')[0] ?? '')).toMatchObject({ status: 403, source_group: 'clients' });
  expect((await fetch('/v1/things', '-X', 'DELETE')).stdout.split('\n').at(-1)).toBe('403');
  expect((await fetch('/v1/../other', '--path-as-is')).stdout.split('\n').at(-1)).toBe('403');
  expect((await fetch('/v1/@a%2fb')).stdout.split('\n').at(-1)).toBe('200');
  expect((await fetch('/v1/..%2fother')).stdout).toContain('because of the decoded form of its path');
  const reasonsOf = async () => {
    const { body: found } = await rig.node.request('GET', '/api/v1/audit/findings?finding_type=http_deny');
    return (found as { items: { reason: string | null; http: { path: string } }[] }).items.map(
      ({ reason, http: { path } }) => `${path} ${reason}`,
    );
  };
  await expect
    .poll(reasonsOf)
    .toEqual(expect.arrayContaining(['/v1/..%2fother path_decoded', '/v1/../other path_normalised', '/other null']));
  const flow = { src: ADDRESSES.client, dst: ADDRESSES.server, proto: 'tcp', src_port: 40_000, dst_port: 443 };
  for (const [request, effective] of [
    [{ method: 'GET', path: '/v1/things', query: { x: ['1'] } }, 'allow'],
    [{ method: 'GET', path: '/other' }, 'deny'],
    [{ method: 'DELETE', path: '/v1/things' }, 'deny'],
    [{ method: 'GET', path: '/v1/../other' }, 'deny'],
    [{ method: 'GET', path: '/v1/..%2fother' }, 'deny'],
  ] as const) {
    const question = { ...flow, sni: SERVER_NAME, http: request };
    const { body } = await rig.node.request('POST', '/api/v1/policy/explain', question);
    expect([request, body]).toEqual([request, expect.objectContaining({ effective_action: effective, unknown: [] })]);
  }
});

test('an HTTP request body of 3 MB passes with Content-Length, with chunked encoding, and with Expect: 100-continue', async () => {
  await rig.put(policyOf([http({ request: { path: { prefix: ['/'] } } })]));
  const file = await rig.file('body', 'x'.repeat(3_000_000));
  for (const options of [[], ['-H', 'Transfer-Encoding: chunked'], ['-H', 'Expect: 100-continue']]) {
    const { stdout, stderr } = await fetch('/put', '-T', file, ...options);
    expect(stderr).toBe('');
    expect(JSON.parse(stdout.split('\n')[0] ?? '')).toMatchObject({ method: 'PUT', bytes: 3_000_000 });
  }
});

test('an HTTP response that violates the rule of its request is replaced by a response with status 502', async () => {
  await rig.put(policyOf([http({ response: { headers: { deny_present: ['x-internal'] } } })]));
  expect((await fetch('/v1/things')).stdout.split('\n').at(-1)).toBe('502');
});

test('a client gets no response from a server with an invalid certificate', async () => {
  await rig.put(
    policyOf([{ match: { proto: 'tcp', tls: { mode: 'intercept', http: { request: { methods: ['GET'] } } } } }]),
  );
  const reached: string[] = [];
  let port = 4_430;
  for (const [fault, shown] of Object.entries(rig.certificates.broken)) {
    port += 1;
    const server = await rig.serve(port, shown, '-www', '-cipher', 'ALL:@SECLEVEL=0');
    const at = `${SERVER_NAME}:${port}`;
    const { code, stdout } = await rig.curl('-k', '--resolve', `${at}:${ADDRESSES.server}`, `https://${at}/`);
    if (code === 0 || stdout !== '') reached.push(fault);
    server.kill('SIGKILL');
  }
  expect(reached).toEqual([]);
  port += 1;
  await rig.serve(port, rig.certificates.good, '-www');
  const { stdout } = await rig.curl(
    '-k',
    '--resolve',
    `${SERVER_NAME}:${port}:${ADDRESSES.server}`,
    `https://${SERVER_NAME}:${port}/`,
  );
  expect(stdout).toContain('s_server');
});

test('in audit mode, a connection to a server with an untrusted certificate passes without interception', async () => {
  await rig.put(
    policyOf([
      { mode: 'audit', match: { proto: 'tcp', tls: { mode: 'intercept', http: { request: { methods: ['GET'] } } } } },
    ]),
  );
  await rig.serve(4_500, rig.certificates.broken.expired, '-www');
  const at = `${SERVER_NAME}:4500`;
  const { stdout } = await rig.curl('-k', '--resolve', `${at}:${ADDRESSES.server}`, `https://${at}/`);
  expect(stdout).toContain('s_server');
});

test('after a valid request, a second request whose Host differs from the TLS server name gets status 421', async () => {
  await rig.put(policyOf([http({ request: { path: { prefix: ['/'] } } })]));
  const { stdout } = await rig.curl(
    ...[
      '--cacert',
      caFile,
      '--resolve',
      `${SERVER_NAME}:443:${ADDRESSES.server}`,
      '-o',
      '/dev/null',
      '-w',
      '%{http_code} ',
    ],
    ...[
      `https://${SERVER_NAME}/one`,
      '--next',
      '--cacert',
      caFile,
      '-sS',
      '--resolve',
      `${SERVER_NAME}:443:${ADDRESSES.server}`,
    ],
    ...['-o', '/dev/null', '-w', '%{http_code}', '-H', 'Host: other.test', `https://${SERVER_NAME}/two`],
  );
  expect(stdout).toBe('200 421');
});

test('while the file upstream_ca contains no certificate, the earlier CA certificates stay in use, and readiness and stats report the fault', async () => {
  await rig.put(policyOf([http({ request: { methods: ['GET'] } })]));
  const standing = async (): Promise<unknown> => {
    const { status, body } = await rig.node.request('GET', '/ready');
    const { checks } = body as { readonly checks: readonly { readonly name: string; readonly state: string }[] };
    return [status, checks.find(({ name }) => name === 'service_plane')?.state];
  };
  const fault = async (): Promise<unknown> => {
    const { body } = await rig.node.request('GET', '/api/v1/stats');
    return (body as { readonly tls: { readonly upstream_ca_fault: unknown } }).tls.upstream_ca_fault;
  };
  const soon = { timeout: 5_000 };
  await writeFile(rig.rootFile, 'nothing');
  await expect.poll(standing, soon).toEqual([200, 'inspecting_by_older_authorities']);
  expect(await fault()).toBe(`read ${rig.rootFile}: the file contains no readable PEM certificate`);
  expect((await fetch('/')).stdout.split('\n').at(-1)).toBe('200');
  await writeFile(rig.rootFile, rig.certificates.rootPem);
  await expect.poll(standing, soon).toEqual([200, 'inspecting']);
  expect(await fault()).toBeNull();
});

test('without an intercept CA, connections that match an intercept rule are reset, or pass if the rule is in audit mode', async () => {
  await rig.put(policyOf([http({ request: { methods: ['GET'] } })]));
  expect((await rig.node.request('DELETE', CA)).status).toBe(204);
  const ready = await rig.node.request('GET', '/ready');
  expect(ready.text).toContain('there is no intercept CA (`weir ca generate` makes one)');
  expect((await fetch('/')).code).not.toBe(0);
  await rig.put(policyOf([http({ request: { methods: ['GET'] } }, { mode: 'audit' })]));
  const { certificates } = rig;
  const root = await rig.file('root.pem', certificates.rootPem);
  const passed = await rig.curl(
    '--cacert',
    root,
    '--resolve',
    `${SERVER_NAME}:443:${ADDRESSES.server}`,
    `https://${SERVER_NAME}/`,
  );
  expect(JSON.parse(passed.stdout)).toMatchObject({ method: 'GET' });
  await rig.node.request('POST', `${CA}/generate`);
  await rig.node.ready();
  caFile = await rig.file('ca-2.pem', (await rig.node.request('GET', `${CA}/cert`)).text);
  expect((await fetch('/', '-w', '%{http_code}')).stdout.endsWith('200')).toBe(true);
});
