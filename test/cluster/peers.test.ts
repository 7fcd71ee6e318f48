import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { afterAll, afterEach, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { eventsOf } from '#observe/wiretap/event-stream.js';
import { HANGING_MS } from '#test/eventually.js';
import { ProgressClock } from '#test/progress-clock.js';
import { built } from '#threads/built-file.js';
import { ClusterNode } from './node-cluster.js';
import { nodesOfFile } from './nodes-of-file.js';

const FINDINGS = '/api/v1/audit/findings';

const folder = mkdtempSync(join(tmpdir(), 'weir-peers-'));
afterAll(() => rmSync(folder, { recursive: true }));
const started = nodesOfFile(3, 'peers');
const { nodes, nodeAt: at } = started;

afterEach(() => {
  for (const node of nodes) node.signal('SIGCONT');
});

/** Sends `count` requests with a wrong token. Each node stores one finding about its refused requests. */
async function refusedLogins(node: ClusterNode, count: number): Promise<void> {
  for (let sent = 0; sent < count; sent++)
    await fetch(`${node.url}/api/v1/policy`, { headers: { authorization: 'Bearer wrong' } });
}

/** Runs a command of the CLI on a node. */
function weir(
  node: ClusterNode,
  ...words: readonly string[]
): { readonly status: number | null; readonly out: string; readonly err: string } {
  const token = readFileSync(join(node.folder, 'data', 'admin.token'), 'utf8').trim();
  const { status, stdout, stderr } = spawnSync(
    'nsenter',
    [`--net=/run/netns/${started.etcd.namespace}`, process.execPath, built('../bin/weir.js'), ...words],
    { encoding: 'utf8', env: { ...process.env, WEIR_SERVER: node.url, WEIR_TOKEN: token } },
  );
  return { status, out: stdout, err: stderr };
}

/** Opens the wiretap at one node. It shows the traffic of all nodes. */
async function wiretapOfAll(node: ClusterNode) {
  const token = readFileSync(join(node.folder, 'data', 'admin.token'), 'utf8').trim();
  const stream = await fetch(`${node.url}/api/v1/wiretap/stream?scope=cluster`, {
    headers: { authorization: `Bearer ${token}`, accept: 'text/event-stream' },
    signal: AbortSignal.timeout(HANGING_MS),
  });
  const messages = eventsOf(stream.body as unknown as AsyncIterable<Uint8Array>);
  return {
    next: async (): Promise<unknown> => JSON.parse((await messages.next()).value ?? '') as unknown,
    end: () => messages.return(undefined),
  };
}

describe('the findings of all nodes', () => {
  test('the list of findings of all nodes merges equal findings into one item with the sum of the counts', async () => {
    await refusedLogins(at(0), 2);
    await refusedLogins(at(1), 3);
    await expect
      .poll(async () => (await at(2).request('GET', FINDINGS)).body)
      .toMatchObject({
        items: [{ count: 5, node_ids: ['n1', 'n2'] }],
        partial: false,
        node_errors: [],
        nodes_queried: 3,
        nodes_responded: 3,
      });
    expect((await at(2).request('GET', `${FINDINGS}/local`)).body).toMatchObject({ items: [], nodes_queried: 1 });
  });

  test('the list of findings of all nodes is returned within 2.1 s while a node is frozen, without its findings, and names that node', async () => {
    at(1).signal('SIGSTOP');
    const clock = new ProgressClock();
    const { body } = await at(0).request('GET', FINDINGS);
    expect(clock.ms()).toBeLessThan(2_100);
    expect(body).toMatchObject({
      items: [{ count: 2, node_ids: ['n1'] }],
      partial: true,
      node_errors: [{ node_id: 'n2', error: 'it did not respond within 1.5 s' }],
      nodes_responded: 2,
    });
  });

  test('each node lists the findings of all nodes while etcd is away, also if a node started meanwhile', async () => {
    await Promise.all(nodes.map((node) => node.takesPart()));
    for (const { name } of started.etcd.members) await started.etcd.signal(name, 'SIGSTOP');
    try {
      await at(2).end('SIGTERM');
      at(2).start();
      await at(2).serves();
      for (const node of [at(2), at(0)]) {
        await expect
          .poll(async () => (await node.request('GET', FINDINGS)).body)
          .toMatchObject({ items: [{ count: 5 }], node_errors: [], nodes_responded: 3 });
      }
    } finally {
      for (const { name } of started.etcd.members) await started.etcd.signal(name, 'SIGCONT');
    }
    await Promise.all(nodes.map((node) => node.takesPart()));
  });
});

describe('the peer listener', () => {
  const peerOf = (node: ClusterNode, path: string, more: readonly string[] = []): string =>
    execFileSync('curl', ['-sk', '-w', ' %{http_code}', ...more, `https://${node.peerAddress}${path}`], {
      encoding: 'utf8',
    });

  test('the peer listener refuses a client without the certificate of a member, even with an API token', () => {
    const token = readFileSync(join(at(0).folder, 'data', 'admin.token'), 'utf8').trim();
    expect(peerOf(at(0), `${FINDINGS}/local`, ['-H', `authorization: Bearer ${token}`])).toMatch(
      /peer_unknown.* 403$/s,
    );
    const own = join(folder, 'own');
    execFileSync('openssl', [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-subj', '/CN=n2'],
      ...['-keyout', `${own}.key`, '-out', `${own}.pem`],
    ]);
    const certificate = ['--cert', `${own}.pem`, '--key', `${own}.key`];
    expect(peerOf(at(0), `${FINDINGS}/local`, certificate)).toMatch(/peer_unknown.* 403$/s);
  });

  test('the peer listener has no API route that only users need', () => {
    expect(peerOf(at(0), '/ready')).toMatch(/peer_unknown.* 403$/s);
    expect(peerOf(at(0), '/api/v1/policy')).toMatch(/ 404$/);
    expect(peerOf(at(0), '/metrics')).toMatch(/ 404$/);
    expect(peerOf(at(0), '/openapi/service-v1.json')).toMatch(/ 404$/);
  });

  test('the peer listener accepts no TLS version below 1.3', async () => {
    const [host, port] = at(0).peerAddress.split(':');
    const socket = connect({ host: host ?? '', port: Number(port), maxVersion: 'TLSv1.2', rejectUnauthorized: false });
    await expect(
      new Promise((resolve, reject) => {
        socket.once('secureConnect', resolve);
        socket.once('error', reject);
      }),
    ).rejects.toMatchObject({ code: expect.stringMatching(/PROTOCOL_VERSION/) });
  });
});

test('a support dump has a folder for each node, and names a node that does not respond', async () => {
  at(2).signal('SIGSTOP');
  const file = join(folder, 'dump.tar.gz');
  expect(weir(at(0), 'sysdump', '--output', file)).toMatchObject({ status: 0 });
  const manifest = execFileSync('tar', ['xzOf', file, '--wildcards', '*/manifest.json'], { encoding: 'utf8' });
  expect(JSON.parse(manifest)).toMatchObject({
    nodes: [
      { node: 'n1', folder: 'n1', error: null },
      { node: 'n2', folder: 'n2', error: null },
      { node: 'n3', folder: 'n3', error: 'it did not respond within 2 s', entries: [] },
    ],
  });
  const files = execFileSync('tar', ['tzf', file], { encoding: 'utf8' });
  for (const name of ['n1/readiness.json', 'n2/readiness.json']) expect(files).toContain(name);
});

describe('a node that joins with a token', () => {
  const config = join(folder, 'n4.yaml');
  let joined: ClusterNode;
  let token: string;

  test('a node that joins with a token stores the etcd credentials with mode 0600, and keeps the comments of its configuration', () => {
    writeFileSync(config, '# edge\nversion: 1\nnode: { id: n4, data_dir: /tmp/unused }\n');
    token = weir(at(1), 'cluster', 'token').out.trim();
    const { status, out } = weir(at(0), 'cluster', 'join', token, '--config', config, '--advertise', '127.0.0.1:9084');
    expect([status, out]).toEqual([0, expect.stringContaining('Start the node')]);
    const text = readFileSync(config, 'utf8');
    expect(text).toContain('# edge');
    expect(statSync(join(folder, 'cluster', 'etcd.key')).mode & 0o777).toBe(0o600);
    joined = new ClusterNode('n4', 3, started.etcd, { cluster: (parse(text) as { cluster: object }).cluster });
  });

  test('a node cannot join with a token that was already used', () => {
    writeFileSync(config, 'version: 1\n');
    const { status, err } = weir(at(0), 'cluster', 'join', token, '--config', config, '--advertise', '127.0.0.1:9085');
    expect([status, err]).toEqual([1, expect.stringContaining('has expired, or was used before')]);
    expect(readFileSync(config, 'utf8')).toBe('version: 1\n');
  });

  test('a node that has joined with a token is a node of the cluster, and other nodes request its findings', async () => {
    nodes.push(joined);
    joined.start();
    await joined.serves();
    await joined.takesPart();
    await refusedLogins(joined, 1);
    await expect
      .poll(async () => (await at(0).request('GET', FINDINGS)).body)
      .toMatchObject({
        items: expect.arrayContaining([expect.objectContaining({ count: 6, node_ids: ['n1', 'n2', 'n4'] })]),
      });
  });

  test('a node that was removed from the cluster is refused as a member and as a peer, and its API tokens are refused', async () => {
    const ofJoined = readFileSync(join(joined.folder, 'data', 'admin.token'), 'utf8').trim();
    const withIt = () => at(0).request('GET', '/api/v1/policies', undefined, { authorization: `Bearer ${ofJoined}` });
    await expect.poll(async () => (await withIt()).status).toBe(200);
    const wiretap = await wiretapOfAll(at(0));
    expect(weir(at(2), 'cluster', 'remove', 'n4')).toMatchObject({ status: 0 });
    await expect.poll(async () => (await withIt()).status).toBe(401);
    const reason = 'it is not a node of the cluster any more';
    expect(await wiretap.next()).toEqual({ type: 'node_gone', node_id: 'n4', reason });
    await wiretap.end();
    expect((await joined.until('cluster', 'refused')).detail).toMatch(/: admin removed this node from the cluster at /);
    expect(await joined.request('GET', FINDINGS)).toMatchObject({
      body: {
        partial: true,
        node_errors: [{ node_id: 'n1', error: expect.stringContaining('no certificate of a') }, {}, {}],
      },
    });
    expect(weir(at(0), 'cluster', 'nodes').out).not.toContain('n4');
    await joined.end('SIGTERM');
    joined.start();
    await joined.serves();
    await joined.until('cluster', 'refused');
  });
});

test('a wiretap of all nodes reports each node whose messages it does not receive', async () => {
  at(1).signal('SIGSTOP');
  const { next, end } = await wiretapOfAll(at(0));
  expect(await next()).toEqual({ type: 'node_gone', node_id: 'n2', reason: 'it did not respond within 2 s' });
  at(1).signal('SIGCONT');
  expect(await next()).toEqual({ type: 'node_back', node_id: 'n2' });
  await end();
});

test('`weir cluster nodes` shows ready, frozen and stopped nodes', async () => {
  at(1).signal('SIGSTOP');
  expect(weir(at(0), 'cluster', 'nodes').out).toMatch(
    /n1 +not_ready .*\nn2 +no_response .*it did not respond.*\nn3 +not_ready/,
  );
  at(1).signal('SIGCONT');
  await at(2).end('SIGTERM');
  await expect.poll(() => weir(at(0), 'cluster', 'nodes').out).toMatch(/n3 +absent/);
  expect(at(2).crashes).toEqual([]);
  expect((await at(0).request('GET', FINDINGS)).body).toMatchObject({
    partial: true,
    node_errors: [{ node_id: 'n3', error: 'the requested node is not a member of the cluster at present' }],
  });
});

test('nodes with certificates of a CA refuse nodes whose certificates that CA did not sign', async () => {
  const file = (name: string): string => join(started.etcd.folder, name);
  const tls = { ca: file('ca.pem'), cert: file('weir.pem'), key: file('weir.key') };
  const withTls = [4, 5].map((index) => {
    const address = `127.0.0.1:${9081 + index}`;
    return new ClusterNode(`n${index + 1}`, index, started.etcd, {
      cluster: { peer: { listen: address, advertise: address, tls } },
    });
  });
  nodes.push(...withTls);
  for (const node of withTls) node.start();
  for (const node of withTls) await node.serves();
  for (const node of withTls) await node.takesPart();
  const { body } = await (withTls[0] as ClusterNode).request('GET', FINDINGS);
  const { node_errors: errors } = body as { node_errors: { node_id: string; error: string }[] };
  expect(errors.map(({ node_id: node }) => node)).toEqual(['n1', 'n2', 'n3']);
  expect(errors[0]?.error).toMatch(/^the CA of this node did not sign its certificate/);
});
