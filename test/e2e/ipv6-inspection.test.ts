import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Namespace } from '#cli/tour/topology.js';
import { addFar, addIpv6, FAR, IPV6 } from '#test/kernel/ipv6.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { createInspectedRig, type InspectedRig } from './inspected.js';
import { readWiretap } from './reader.js';
import { policyOf } from './rig.js';

const CA = '/api/v1/settings/tls-intercept-ca';
const RESET = 35;
const soon = { timeout: 10_000, interval: 50 };
let rig: InspectedRig;
let far: Namespace;
let caFile: string;

beforeAll(async () => {
  rig = await createInspectedRig('v6tls', {}, { dataplane: { ipv6: 'enforce' } });
  await addIpv6(rig.topology);
  far = await addFar(rig.topology);
  for (const host of [rig.topology.server, far]) await rig.web(443, rig.certificates.good, host);
  const made = await rig.node.request('POST', `${CA}/generate`);
  if (made.status !== 201) throw new Error(made.text);
  caFile = await rig.file('ca.pem', (await rig.node.request('GET', `${CA}/cert`)).text);
});
afterAll(async () => {
  await far?.remove();
  await rig?.remove();
});

const put = (tls: Readonly<Record<string, unknown>>, more: Readonly<Record<string, unknown>> = {}): Promise<void> =>
  rig.put(policyOf([{ match: { proto: 'tcp', dst_ports: [443], tls }, ...more }], { sources: { ips: [IPV6.client] } }));
const intercept = (request: Readonly<Record<string, unknown>>): Promise<void> =>
  put({ mode: 'intercept', http: { request } });

type Answer = {
  readonly code: number | null;
  readonly status: string;
  readonly body: Readonly<Record<string, unknown>>;
};
/** Requests a path of the HTTPS server at an IPv6 address. */
async function get(path: string, words: readonly string[] = [], to: string = IPV6.server, name = SERVER_NAME) {
  const at = `${name}:443`;
  const options = ['--cacert', caFile, '--resolve', `${at}:[${to}]`, '-w', '\n%{http_code}', ...words];
  const { code, stdout } = await rig.curl(...options, `https://${at}${path}`);
  const [body = '', status = ''] = stdout.split('\n');
  return { code, status, body: body === '' ? {} : JSON.parse(body) } as Answer;
}

test('an IPv6 connection with an allowed server name reaches the server from the address of the client, and one with another name is reset', async () => {
  await put({ sni: [SERVER_NAME] });
  await rig.node.ready();
  const allowed = await get('/', ['--insecure']);
  expect([allowed.code, allowed.status, allowed.body.from]).toEqual([0, '200', IPV6.client]);
  expect((await get('/', ['--insecure'], IPV6.server, 'other.test')).code).toBe(RESET);
});

test('an IPv6 connection that a rule denies by its server name causes one finding and one wiretap message with IPv6 addresses', async () => {
  await put({ sni: [SERVER_NAME] }, { action: 'deny' });
  const since = new Date().toISOString();
  const reader = await readWiretap(rig.node, `?type=tls&verdict=deny&hostname=${SERVER_NAME}`);
  expect((await get('/', ['--insecure'])).code).toBe(RESET);
  const ends = { dst_port: 443, rule: 'r0', sni: SERVER_NAME };
  await expect
    .poll(() => reader.messages, soon)
    .toMatchObject([{ ...ends, type: 'tls', src: IPV6.client, dst: IPV6.server, verdict: 'deny' }]);
  reader.socket.close();
  const found = async () =>
    (await rig.node.request('GET', `/api/v1/audit/findings?finding_type=tls_deny&since=${since}`)).body;
  await expect
    .poll(found, soon)
    .toMatchObject({ items: [{ ...ends, src_ip: IPV6.client, dst_ip: IPV6.server, effective_action: 'deny' }] });
});

test('with interception, an allowed HTTP request reaches the server over IPv6, and a denied request gets status 403, as POST /api/v1/policy/explain predicts', async () => {
  await intercept({ methods: ['GET'], path: { prefix: ['/v1/'] } });
  const allowed = await get('/v1/things');
  expect([allowed.status, allowed.body.url, allowed.body.from]).toEqual(['200', '/v1/things', IPV6.client]);
  expect((await get('/other')).status).toBe('403');
  expect((await get('/v1/things', ['-X', 'DELETE'])).status).toBe('403');
  const flow = { src: IPV6.client, dst: IPV6.server, proto: 'tcp', src_port: 40_000, dst_port: 443, sni: SERVER_NAME };
  const explain = async (path: string) =>
    (await rig.node.request('POST', '/api/v1/policy/explain', { ...flow, http: { method: 'GET', path } })).body;
  expect(await explain('/v1/things')).toMatchObject({ effective_action: 'allow', unknown: [] });
  expect(await explain('/other')).toMatchObject({ effective_action: 'deny', unknown: [] });
});

test('an IPv6 connection with plain HTTP to the port of a TLS rule is reset', async () => {
  await put({ sni: [SERVER_NAME] });
  const { code } = await rig.curl(`http://[${IPV6.server}]:443/`);
  expect([52, 56]).toContain(code);
});

test.each([
  ['metadata', () => put({ sni: [SERVER_NAME] }), ['--insecure']],
  ['intercept', () => intercept({ methods: ['PUT'] }), []],
] as const)(
  'with mode %s, a client uploads a file over a path whose MTU of 1280 the node learns by packet-too-big',
  async (_, enforce, words) => {
    await enforce();
    await rig.topology.node.must('ip', '-6', 'route', 'flush', 'cache');
    const file = await rig.file('body', 'x'.repeat(3_000_000));
    const answer = await get('/put', ['-T', file, '-H', 'Expect:', ...words], FAR.host);
    expect([answer.status, answer.body.bytes]).toEqual(['200', 3_000_000]);
    expect(await rig.topology.node.must('ip', '-6', 'route', 'get', FAR.host)).toContain('mtu 1280');
  },
);

test('while the node is dead, IPv6 connections that match a TLS rule are dropped; after a restart they are inspected', async () => {
  await put({ sni: [SERVER_NAME] });
  await rig.node.end('SIGKILL');
  expect((await get('/', ['--insecure', '--connect-timeout', '1'])).code).toBe(28);
  await rig.node.restart();
  await rig.node.ready();
  expect((await get('/', ['--insecure'])).status).toBe('200');
  expect((await get('/', ['--insecure'], IPV6.server, 'other.test')).code).toBe(RESET);
});
