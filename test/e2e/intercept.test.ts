import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/topology.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { createInspectedRig, type InspectedRig } from './inspected.js';
import { policyOf } from './rig.js';

const CA = '/api/v1/settings/tls-intercept-ca';
/** Answers every request with what it understood of it. */
const SERVER = `
const { createServer } = require('node:https');
const { readFileSync } = require('node:fs');
const [cert, key] = process.argv.slice(1).map((path) => readFileSync(path));
createServer({ cert, key }, (request, response) => {
  let bytes = 0;
  request.on('data', (chunk) => { bytes += chunk.length; });
  request.on('end', () => {
    const body = JSON.stringify({ method: request.method, url: request.url, headers: request.rawHeaders, bytes, from: request.socket.remoteAddress });
    response.writeHead(200, { 'content-type': 'application/json', 'x-internal': 'yes' });
    response.end(body);
  });
}).listen(443, () => console.log('up'));`;

let rig: InspectedRig;
let caFile: string;
beforeAll(async () => {
  rig = await createInspectedRig('intercept');
  const { certPem, keyPem } = rig.certificates.good;
  const files = [await rig.file('cert.pem', certPem), await rig.file('key.pem', keyPem)];
  const server = rig.topology.server.start(process.execPath, ['-e', SERVER, ...files]);
  await new Promise((resolve) => server.stdout?.once('data', resolve));
  const made = await rig.node.request('POST', `${CA}/generate`);
  if (made.status !== 201) throw new Error(made.text);
  caFile = await rig.file('ca.pem', (await rig.node.request('GET', `${CA}/cert`)).text);
}, 120_000);
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

test('a request that a rule allows goes on, and one that none allows is answered 403 with the rule', async () => {
  await rig.put(policyOf([http({ request: { methods: ['GET'], path: { prefix: ['/v1/'] } } })], { default_action: 'deny' }));
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
});

test('bodies go both ways', async () => {
  await rig.put(policyOf([http({ request: { path: { prefix: ['/'] } } })]));
  const file = await rig.file('body', 'x'.repeat(3_000_000));
  for (const options of [[], ['-H', 'Transfer-Encoding: chunked'], ['-H', 'Expect: 100-continue']]) {
    const { stdout, stderr } = await fetch('/put', '-T', file, ...options);
    expect(stderr).toBe('');
    expect(JSON.parse(stdout.split('\n')[0] ?? '')).toMatchObject({ method: 'PUT', bytes: 3_000_000 });
  }
});

test('a response that breaks the rule is answered 502', async () => {
  await rig.put(policyOf([http({ response: { headers: { deny_present: ['x-internal'] } } })]));
  expect((await fetch('/v1/things')).stdout.split('\n').at(-1)).toBe('502');
});
