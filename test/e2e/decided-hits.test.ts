import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { run } from '#test/cli/cli-run.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { createInspectedRig, type InspectedRig } from './inspected.js';
import { DNS_SECTION, dig, startUpstream } from './names.js';
import { policyOf } from './rig.js';

const CA = '/api/v1/settings/tls-intercept-ca';
const PORT = { web: 443, http2: 444, expired: 445 } as const;
/** No host has this address, so only the DNS proxy of the node can answer a DNS query to this address. */
const ELSEWHERE = '198.51.100.53';
const soon = { timeout: 5_000, interval: 50 };
const HTTP2_SERVER = `
const { createSecureServer } = require('node:http2');
const { readFileSync } = require('node:fs');
const [port, ...files] = process.argv.slice(1);
const [cert, key] = files.map((path) => readFileSync(path));
createSecureServer({ cert, key }, (_, response) => response.end('page')).listen(Number(port), () => console.log('up'));`;

let rig: InspectedRig;
beforeAll(async () => {
  rig = await createInspectedRig(
    'decided',
    {},
    {
      sections: {
        dns: { ...DNS_SECTION, transparent: true },
      },
    },
  );
  const { good, broken } = rig.certificates;
  await rig.topology.node.must('ip', 'route', 'add', 'default', 'via', ADDRESSES.server);
  await startUpstream(rig);
  await rig.web(PORT.web, good);
  await rig.serve(PORT.expired, broken.expired, '-www');
  const files = [await rig.file('http2.pem', good.certPem), await rig.file('http2.key', good.keyPem)];
  const http2 = rig.topology.server.start(process.execPath, ['-e', HTTP2_SERVER, String(PORT.http2), ...files]);
  await new Promise((resolve) => http2.stdout?.once('data', resolve));
});
afterAll(() => rig?.remove());

type Hit = { readonly rule: string | null; readonly decided_by: string; readonly packets: number };
const hits = async (): Promise<Readonly<Record<string, number>>> => {
  const { items } = (await rig.node.request('GET', '/api/v1/policy/hits')).body as { items: Hit[] };
  return Object.fromEntries(items.flatMap(({ rule, packets }) => (rule === null ? [] : [[rule, packets]])));
};
const to = (port: number, tls: Readonly<Record<string, unknown>>) => ({
  match: { proto: 'tcp', dst_ports: [port], tls },
});
const paths = (...prefix: string[]) => ({ mode: 'intercept', http: { request: { path: { prefix } } } });
/**
 * Returns the HTTP status of each request, `000` without a response. The requests share a connection if
 * possible.
 */
const statuses = async (port: number, ...wanted: string[]): Promise<readonly string[]> => {
  const at = `${SERVER_NAME}:${port}`;
  const one = (path: string): string[] => ['-o', '/dev/null', '-w', '%{http_code} ', `https://${at}${path}`];
  const { stdout } = await rig.curl('-k', '--resolve', `${at}:${ADDRESSES.server}`, ...wanted.flatMap(one));
  return stdout.trim().split(' ');
};

test('a connection that the node must inspect but cannot inspect is reset, and counts as a hit of the deciding rule', async () => {
  await rig.put(
    policyOf([
      { id: 'no-ca', ...to(PORT.web, paths('/v1/')) },
      { id: 'untrusted', ...to(PORT.expired, paths('/v1/')) },
      { id: 'unused', ...to(PORT.web, { sni: ['other.test'] }) },
    ]),
  );
  await rig.node.ready({ except: ['service_plane'] });
  expect(await statuses(PORT.web, '/v1/')).toEqual(['000']);
  await expect.poll(hits, soon).toEqual({ 'no-ca': 1, untrusted: 0, unused: 0 });
  const made = await rig.node.request('POST', `${CA}/generate`);
  if (made.status !== 201) throw new Error(made.text);
  await rig.node.ready();
  expect(await statuses(PORT.expired, '/v1/')).toEqual(['000']);
  await expect.poll(hits, soon).toEqual({ 'no-ca': 1, untrusted: 1, unused: 0 });
});

test('each request of an HTTP/2 connection counts as a hit of the rule that decided the request', async () => {
  await rig.put(
    policyOf([
      { id: 'http-denied', action: 'deny', ...to(PORT.http2, paths('/no/')) },
      { id: 'http-allowed', ...to(PORT.http2, paths('/v1/')) },
      { id: 'unused', ...to(PORT.http2, paths('/v2/')) },
    ]),
  );
  expect(await statuses(PORT.http2, '/v1/', '/no/', '/v1/', '/v1/')).toEqual(['200', '403', '200', '200']);
  await expect.poll(hits, soon).toEqual({ 'http-denied': 1, 'http-allowed': 3, unused: 0 });
});

const LOOKUPS = policyOf([
  { id: 'denied', action: 'deny', match: { dns_hostname: 'bad.example.com' } },
  { id: 'allowed', match: { dns_hostname: '*.example.com', proto: 'tcp', dst_ports: [443] } },
  { id: 'unused', match: { dns_hostname: 'other.example.org' } },
]);

test('a DNS query redirected to the DNS proxy counts as a hit of the deciding rule; `weir hits --unused` lists rules without hits', async () => {
  await rig.put(LOOKUPS);
  expect((await dig(rig, ELSEWHERE, 'api.example.com')).status).toBe('NOERROR');
  expect((await dig(rig, ELSEWHERE, '+tcp', 'api.example.com')).status).toBe('NOERROR');
  expect((await dig(rig, ELSEWHERE, 'bad.example.com')).status).toBe('NXDOMAIN');
  await expect.poll(hits, soon).toEqual({ denied: 1, allowed: 2, unused: 0 });
  const environment = { WEIR_SERVER: rig.node.url, WEIR_TOKEN: await rig.node.token() };
  const { out } = await run(['hits', '--unused'], environment);
  expect(out).toMatch(
    /^GROUP +RULE .*\nclients +unused +0 +0 +never, since [^\n]+\n\(policy\) +\(default\) +0 +0 +never, since [^\n]+\n$/,
  );
});

test('DNS and HTTP decisions shortly before a shutdown of the node count as hits after the restart', async () => {
  await rig.put(LOOKUPS);
  const before = await hits();
  const lookups = 8;
  // At the shutdown, some of these decisions may still wait in the DNS thread or on their way to another
  // thread. The node must count them all.
  for (let count = 0; count < lookups; count++) await dig(rig, ELSEWHERE, 'api.example.com');
  await rig.node.end('SIGTERM');
  await rig.node.restart();
  await rig.node.ready();
  expect(await hits()).toEqual({ ...before, allowed: (before.allowed ?? 0) + lookups });

  await rig.put(policyOf([{ id: 'http-allowed', ...to(PORT.http2, paths('/v1/')) }]));
  const earlier = (await hits())['http-allowed'] ?? 0;
  expect(await statuses(PORT.http2, '/v1/', '/v1/')).toEqual(['200', '200']);
  await rig.node.end('SIGTERM');
  await rig.node.restart();
  await rig.node.ready();
  expect(await hits()).toEqual({ 'http-allowed': earlier + 2 });
});
