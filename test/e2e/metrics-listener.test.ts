import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { firstLine, type NodeOptions, type NodeProcess, startNode } from '#cli/tour/node-process.js';
import { ADDRESSES, createTopology, type Topology, temporaryFolder } from '#cli/tour/topology.js';
import { makeCertificate } from '#test/kubernetes/server-certificate.js';
import { leastPrivileges, policyOf } from './rig.js';

const PORT = 19_649;
const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

async function topologyOf(tag: string): Promise<Topology> {
  const topology = await createTopology(tag);
  ends.push(() => topology.remove());
  return topology;
}
async function nodeIn(topology: Topology, metrics: object, options: NodeOptions = {}): Promise<NodeProcess> {
  const node = await startNode(topology, { ...options, sections: { ...options.sections, metrics } });
  ends.push(() => node.remove());
  return node;
}
const linesWith = async (node: NodeProcess, text: string): Promise<Record<string, unknown>[]> =>
  (await node.log())
    .split('\n')
    .filter((line) => line.includes(text))
    .map((line) => JSON.parse(line) as Record<string, unknown>);
const soon = { timeout: 30_000 };

/** The status that curl prints in the namespace of the client; 0 if there is no response. */
async function statusOf(topology: Topology, url: string, ...words: string[]): Promise<number> {
  const { stdout } = await topology.client.run(
    'curl',
    ...['-s', '-m', '5', '-o', '/dev/null', '-w', '%{http_code}', ...words, url],
  );
  return Number(stdout);
}

describe('a metrics listener on all addresses', () => {
  let topology: Topology;
  let node: NodeProcess;
  beforeAll(async () => {
    topology = await createTopology('scraped');
    node = await startNode(topology, { sections: { metrics: { listen: `0.0.0.0:${PORT}` } } });
  });
  afterAll(async () => {
    await node?.remove();
    await topology?.remove();
  });

  test('metrics.listen serves metrics, health and readiness to another machine, and nothing else', async () => {
    const at = (path: string) => `http://${ADDRESSES.nodeLan}:${PORT}${path}`;
    // The listener responds although the node has no policy, and so is not ready.
    await expect.poll(() => statusOf(topology, at('/health')), soon).toBe(200);
    expect(await statusOf(topology, at('/ready'))).toBe(503);
    await node.ready({ except: ['policy_ready'] });
    const scraped = await topology.client.must('curl', '-s', '-m', '5', at('/metrics'));
    expect(scraped).toMatch(/^weir_stats_up 1$/m);
    expect(scraped).toMatch(/^weir_ready 0$/m);
    const byName = ['--resolve', `node-7.example:${PORT}:${ADDRESSES.nodeLan}`];
    expect(await statusOf(topology, `http://node-7.example:${PORT}/metrics`, ...byName)).toBe(200);
    for (const path of ['/api/v1/policy', '/openapi/service-v1.json', '/'])
      expect([path, await statusOf(topology, at(path))]).toEqual([path, 404]);
    expect(await statusOf(topology, at('/metrics'), '-X', 'POST')).toBe(405);
    expect(await linesWith(node, 'the metrics listener listens')).toMatchObject([
      { address: '0.0.0.0', port: PORT, tls: false },
    ]);
  });

  test('the nft rules in docs/metrics.md accept only the scraper and the node, even if other rules exist', async () => {
    const url = `http://${ADDRESSES.nodeLan}:${PORT}/health`;
    await topology.node.must('nft', 'add table inet filter');
    await topology.node.must('nft', 'add chain inet filter input { type filter hook input priority 0; }');
    await topology.node.must('nft', 'add rule inet filter input accept');
    const page = await readFile(new URL('../../docs/metrics.md', import.meta.url), 'utf8');
    const rules = [...page.matchAll(/`nft ([^`]+)`/g)].map(([, rule = '']) =>
      rule.replace('10.0.0.9', ADDRESSES.client),
    );
    for (const rule of rules) await topology.node.must('nft', rule);
    expect(rules).toHaveLength(2);
    expect(await statusOf(topology, url)).toBe(200);
    expect(await statusOf(topology, url, '--interface', ADDRESSES.clientOther)).toBe(0);
    const own = await topology.node.must('curl', '-s', '-m', '5', '-o', '/dev/null', '-w', '%{http_code}', url);
    expect(own).toBe('200');
    const chain = await topology.node.must('nft', 'list chain inet filter input');
    expect(chain).toMatch(/meta nfproto ipv6 drop\n.*ip saddr != .* drop\n.*accept/);
    await topology.node.must('nft', 'delete table inet filter');
  });

  // The last test of this node, because the node then refuses requests of the client for a time.
  test('the metrics listener limits the rate of requests of another machine, and not of the node itself', async () => {
    const url = `http://${ADDRESSES.nodeLan}:${PORT}/health`;
    // curl repeats the request for each number in [1-40]. The number is in the fragment of the URL, which
    // curl does not send.
    const words = ['-s', '-m', '5', '-o', '/dev/null', '-w', '%{http_code} ', `${url}#[1-40]`];
    const statuses = async (host: Topology['client']) => new Set((await host.must('curl', ...words)).trim().split(' '));
    expect(await statuses(topology.node)).toEqual(new Set(['200']));
    expect(await statuses(topology.client)).toEqual(new Set(['200', '429']));
  });
});

test('metrics.tls serves the paths of metrics.listen only over TLS', async () => {
  const topology = await topologyOf('tls-scrape');
  const folder = await temporaryFolder('tls-scrape');
  const { cert, key } = makeCertificate(folder);
  const tls = { cert: join(folder, 'metrics.pem'), key: join(folder, 'metrics.key') };
  await writeFile(tls.cert, cert);
  await writeFile(tls.key, key);
  await nodeIn(topology, { listen: `${ADDRESSES.nodeLan}:${PORT}`, tls });
  const words = ['--cacert', join(folder, 'ca.pem'), '--resolve', `localhost:${PORT}:${ADDRESSES.nodeLan}`];
  await expect.poll(() => statusOf(topology, `https://localhost:${PORT}/metrics`, ...words), soon).toBe(200);
  expect(await statusOf(topology, `https://localhost:${PORT}/api/v1/policy`, ...words)).toBe(404);
  expect(await statusOf(topology, `http://${ADDRESSES.nodeLan}:${PORT}/metrics`)).toBe(0);
});

test('a node whose metrics.listen is in use by another process enforces its policy, serves its API, and listens when that process ends', async () => {
  const topology = await topologyOf('taken');
  const program = `require('node:net').createServer().listen(${PORT}, '0.0.0.0', () => console.log('listens'))`;
  const other = topology.node.start(process.execPath, ['-e', program]);
  expect(await firstLine(other)).toBe('listens');
  const node = await nodeIn(topology, { listen: `0.0.0.0:${PORT}` });
  await node.ready({ except: ['policy_ready'] });
  const refused = () => linesWith(node, 'the metrics listener does not listen');
  await expect.poll(refused, soon).toMatchObject([{ host: '0.0.0.0', port: PORT, used_by: [{ uid: 0 }] }]);
  expect((await topology.node.run('nft', 'list', 'chain', 'inet', 'weir', 'guard')).code).toBe(0);
  other.kill('SIGKILL');
  await expect.poll(() => statusOf(topology, `http://${ADDRESSES.nodeLan}:${PORT}/metrics`), soon).toBe(200);
  expect(await refused()).toHaveLength(1);
});

test('a node without permission to use the port of metrics.listen logs the failure, and serves its API', async () => {
  const topology = await topologyOf('no-port');
  const node = await nodeIn(topology, { listen: '0.0.0.0:99' }, leastPrivileges(['NET_BIND_SERVICE'], 65_534));
  await node.ready({ except: ['policy_ready'] });
  await expect
    .poll(() => linesWith(node, 'the metrics listener cannot listen'), soon)
    .toMatchObject([{ host: '0.0.0.0', port: 99, err: { code: 'EACCES' } }]);
});

test('with police_local, the policy decides which hosts can scrape metrics.listen', async () => {
  const topology = await topologyOf('policed');
  const node = await nodeIn(topology, { listen: `0.0.0.0:${PORT}` }, { dataplane: { police_local: true } });
  await node.ready({ except: ['policy_ready'] });
  const url = `http://${ADDRESSES.nodeLan}:${PORT}/metrics`;
  expect(await statusOf(topology, url)).toBe(0);
  const scrape = { proto: 'tcp', dst_ips: [ADDRESSES.nodeLan], dst_ports: [PORT] };
  const put = await node.request('PUT', '/api/v1/policy', policyOf([{ match: scrape }]));
  expect([200, 201]).toContain(put.status);
  await expect.poll(() => statusOf(topology, url), soon).toBe(200);
  expect(await statusOf(topology, url, '--interface', ADDRESSES.clientOther)).toBe(0);
});
