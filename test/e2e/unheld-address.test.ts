import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { firstLine, type NodeProcess, startNode } from '#cli/tour/node-process.js';
import { createTopology, type Topology, temporaryFolder } from '#cli/tour/topology.js';
import { makeCertificate } from '#test/kubernetes/server-certificate.js';
import { isInstalled } from './rig.js';
import { FakeServiceManager } from './service-manager.js';

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

test('a node whose api.listen is no address of the machine still reports READY to the service manager', async () => {
  const manager = await FakeServiceManager.start();
  ends.push(() => manager.close());
  const topology: Topology = await createTopology('unheld');
  ends.push(() => topology.remove());
  const folder = await temporaryFolder('unheld');
  const { cert, key } = makeCertificate(folder);
  const tls = { cert: join(folder, 'api.pem'), key: join(folder, 'api.key') };
  await writeFile(tls.cert, cert);
  await writeFile(tls.key, key, { mode: 0o600 });
  const sections = { api: { listen: '192.0.2.9:8080', tls } };
  const node: NodeProcess = await startNode(topology, { serviceManager: manager, sections });
  ends.push(() => node.remove());
  await expect.poll(() => manager.messages).toContain('READY=1');
  expect(await node.log()).toContain('the API cannot listen until the node has this address');
});

test('a node whose api.listen is in use by a process of another user enforces its policy, and listens when that process ends', async () => {
  const topology: Topology = await createTopology('used');
  ends.push(() => topology.remove());
  const user = ['--reuid', '65534', '--regid', '65534', '--clear-groups'];
  const program = "require('node:net').createServer().listen(8080, '127.0.0.1', () => console.log('listens'))";
  const squatter = topology.node.start('setpriv', [...user, process.execPath, '-e', program]);
  expect(await firstLine(squatter)).toBe('listens');
  const node: NodeProcess = await startNode(topology);
  ends.push(() => node.remove());
  const refused = async (): Promise<string[]> =>
    (await node.log()).split('\n').filter((line) => line.includes('another process uses its address'));
  await expect.poll(refused).toHaveLength(1);
  expect(JSON.parse((await refused())[0] ?? '')).toMatchObject({
    host: '127.0.0.1',
    port: 8080,
    // An installed Weir runs as a user that may not see which process has the socket.
    used_by: [{ uid: 65_534, ...(isInstalled ? {} : { pid: squatter.pid, command: expect.any(String) as string }) }],
  });
  const advice = "; `ss -ltnp 'sport = :8080'` as root shows the process\"";
  expect((await refused())[0]?.includes(advice)).toBe(isInstalled);
  // The node loads the guard and attaches its programs while its API cannot listen.
  await expect
    .poll(async () => (await topology.node.run('nft', 'list', 'chain', 'inet', 'weir', 'guard')).code, {
      timeout: 30_000,
    })
    .toBe(0);
  squatter.kill('SIGKILL');
  await node.ready({ except: ['policy_ready'] });
  expect(await refused()).toHaveLength(1);
});
