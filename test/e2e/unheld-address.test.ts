import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { type NodeProcess, startNode } from '#cli/node-process.js';
import { createTopology, type Topology, temporaryFolder } from '#cli/topology.js';
import { makeCertificate } from '#test/kubernetes/server-certificate.js';
import { FakeServiceManager } from './service-manager.js';

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

test('a node whose api.listen is no address of the node is ready for the service manager', async () => {
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
  await expect.poll(() => manager.messages, { timeout: 60_000 }).toContain('READY=1');
  expect(await node.log()).toContain('the API cannot listen until the node has this address');
}, 90_000);
