import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { eventually } from '#test/eventually.js';
import { type SourceCapture, startSourceCapture } from '#test/kernel/source-capture.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import { byServerName, createInspectedRig, type InspectedRig } from './inspected.js';
import { DNS_SECTION, data, dig, startUpstream } from './names.js';
import { policyOf } from './rig.js';

const NAT = 'table ip mine { chain post { type nat hook postrouting priority srcnat; oifname "wan0" masquerade; }; }';
const RELOAD = `flush ruleset\n${NAT}`;
const CA = '/api/v1/settings/tls-intercept-ca';

let rig: InspectedRig;
let capture: SourceCapture;
let caFile: string;
beforeAll(async () => {
  rig = await createInspectedRig('inspectnat', {}, { sections: { dns: { ...DNS_SECTION, transparent: true } } });
  const { node, server } = rig.topology;
  // The server has no route to the client: it can reply only to an address of the node.
  await server.must('ip', 'route', 'del', 'default');
  await rig.web(443, rig.certificates.good);
  await startUpstream(rig);
  const made = await rig.node.request('POST', `${CA}/generate`);
  if (made.status !== 201) throw new Error(made.text);
  caFile = await rig.file('ca.pem', (await rig.node.request('GET', `${CA}/cert`)).text);
  await node.must('nft', NAT);
  await eventually(() => node.must('nft', 'list', 'chain', 'inet', 'weir', 'upstream_zone'));
  capture = await startSourceCapture(server, 'eth0');
});
afterAll(() => rig?.remove());

const tls = (block: Readonly<Record<string, unknown>>) => ({ match: { proto: 'tcp', dst_ports: [443], tls: block } });
const passes = async (...options: string[]): Promise<boolean> =>
  (await rig.dial(443, options)).text.includes('HTTP/1.1 200 OK');

/** Checks that each packet that the server has received since the last call had an address of the node. */
async function onlyNodeOutside(): Promise<void> {
  expect(Object.keys(await capture.sources())).toEqual([ADDRESSES.nodeWan]);
}

/** Opens 100 TLS connections, ten at a time. Returns how many got a response of the server. */
async function hundred(): Promise<number> {
  const program = `
const { get } = require('node:https');
const options = { host: '${ADDRESSES.server}', servername: '${SERVER_NAME}', rejectUnauthorized: false, agent: false };
const one = () => new Promise((resolve) => {
  get(options, (response) => response.resume().on('end', () => resolve(1))).on('error', () => resolve(0));
});
(async () => {
  let answered = 0;
  for (let round = 0; round < 10; round++)
    for (const each of await Promise.all(Array.from({ length: 10 }, one))) answered += each;
  console.log(answered);
})();`;
  return Number(await rig.topology.client.must(process.execPath, '-e', program));
}

test('behind masquerade, an allow rule with a server name passes connections with this server name only', async () => {
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })]));
  await rig.node.ready();
  expect(await byServerName(passes)).toEqual({ own: true, ownByTls12: true, other: false, none: false });
  await onlyNodeOutside();
});

test('behind masquerade, 100 of 100 inspected connections pass', async () => {
  expect(await hundred()).toBe(100);
  await onlyNodeOutside();
});

test('behind masquerade, 100 of 100 inspected connections pass while nftables is flushed and loaded again', async () => {
  const done = hundred();
  let isDone = false;
  void done.finally(() => {
    isDone = true;
  });
  let reloads = 0;
  for (; !isDone; reloads++) {
    await rig.topology.node.must('nft', RELOAD);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  expect([await done, reloads > 1]).toEqual([100, true]);
  await onlyNodeOutside();
});

test('behind masquerade, 8 MB pass through a connection that is decided by its server name', async () => {
  const file = await rig.file('body', 'x'.repeat(8_000_000));
  const at = `${SERVER_NAME}:443:${ADDRESSES.server}`;
  const { stdout } = await rig.curl('-k', '--resolve', at, '-T', file, `https://${SERVER_NAME}/put`);
  expect(JSON.parse(stdout)).toMatchObject({ bytes: 8_000_000, from: `::ffff:${ADDRESSES.nodeWan}` });
  await onlyNodeOutside();
});

test('behind masquerade, an allowed HTTP request reaches the server, and a denied request gets status 403', async () => {
  const http = { request: { methods: ['GET'], path: { prefix: ['/v1/'] } } };
  await rig.put(policyOf([tls({ mode: 'intercept', http })]));
  await rig.node.ready();
  const at = `${SERVER_NAME}:443:${ADDRESSES.server}`;
  const status = async (path: string): Promise<string | undefined> => {
    const url = `https://${SERVER_NAME}${path}`;
    return (await rig.curl('--cacert', caFile, '--resolve', at, '-w', '\n%{http_code}', url)).stdout.split('\n').at(-1);
  };
  expect([await status('/v1/things'), await status('/other')]).toEqual(['200', '403']);
  await onlyNodeOutside();
});

test('behind masquerade, a DNS lookup by UDP or TCP grants the addresses of a name, and connections to these addresses pass', async () => {
  await rig.put(policyOf([{ match: { dns_hostname: 'api.example.com', proto: 'tcp', dst_ports: [80] } }]));
  await rig.node.ready();
  expect(await rig.tcp(80)).toBe('refused ETIMEDOUT');
  const answer = [`api.example.com. A ${ADDRESSES.server}`];
  expect(data(await dig(rig, ADDRESSES.server, '+tcp', 'api.example.com'))).toEqual(answer);
  expect(await rig.tcp(80)).toBe('open');
  expect(data(await dig(rig, ADDRESSES.server, 'api.example.com'))).toEqual(answer);
  expect((await dig(rig, ADDRESSES.server, 'other.example.org')).status).toBe('NXDOMAIN');
  await onlyNodeOutside();
});

test("behind masquerade, connections pass again after the node was killed and started, and no packet leaves with the client's address", async () => {
  await rig.put(policyOf([tls({ sni: [SERVER_NAME] })]));
  const during = hundred();
  await new Promise((resolve) => setTimeout(resolve, 300));
  await rig.node.restart();
  await rig.node.ready();
  await during;
  expect(await hundred()).toBe(100);
  await onlyNodeOutside();
});

test('without NAT rules, the server of an inspected connection sees the address of the client', async () => {
  await rig.topology.server.must('ip', 'route', 'add', 'default', 'via', ADDRESSES.nodeWan);
  await rig.topology.node.must('nft', 'delete table ip mine');
  const chain = () => rig.topology.node.run('nft', 'list', 'chain', 'inet', 'weir', 'upstream_zone');
  await expect.poll(async () => (await chain()).code).toBe(1);
  const at = `${SERVER_NAME}:443:${ADDRESSES.server}`;
  const { stdout } = await rig.curl('-k', '--resolve', at, `https://${SERVER_NAME}/`);
  expect(JSON.parse(stdout)).toMatchObject({ from: `::ffff:${ADDRESSES.client}` });
});
