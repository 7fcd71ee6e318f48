import { rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { readConfig } from '#config/load.js';
import { changeAct } from './change.js';
import { type GatewayFiles, gatewayAct, gatewayFiles } from './gateway.js';
import { keepGateway } from './kept-gateway.js';
import { firstLine, type NodeProcess, program, startNode } from './node-process.js';
import { expectLine, farewell, interruption, lineReader, print, put, result, START, step, WEIR } from './steps.js';
import { ADDRESSES, createTopology, type Topology, temporaryFolder } from './topology.js';

const policy = (ports: readonly number[]) => ({
  default_policy: 'deny',
  source_groups: [
    {
      id: 'clients',
      mode: 'enforce',
      sources: { cidrs: ['10.77.1.0/24'] },
      rules: [
        { id: 'web', action: 'allow', match: { dst_ips: [ADDRESSES.server], proto: 'tcp', dst_ports: ports } },
        { id: 'ping', action: 'allow', match: { proto: 'icmp' } },
      ],
    },
  ],
});

/**
 * Creates three network namespaces, and runs Weir in the middle namespace. Shows how a policy first allows a
 * flow and later denies it, then a gateway that translates addresses, and then a change that reverts itself.
 * With `keep`, leaves the gateway running with traffic until Ctrl-C. Resolves with the exit code.
 */
export async function quickStart(keep: boolean): Promise<number> {
  const { missingForDataplane } = await import('#main.js');
  const missing = await missingForDataplane();
  if (missing.length > 0) return apiOnly(missing.map(({ sentence }) => sentence));
  let topology: Topology | undefined;
  let node: NodeProcess | undefined;
  let files: GatewayFiles | undefined;
  let isOver = false;
  const interrupted = interruption();
  try {
    topology = await createTopology('quick');
    files = await gatewayFiles();
    node = await startNode(topology, { port: 8080, sections: files.sections });
    const done = await Promise.race([tour(topology, node, files), interrupted]);
    if (done !== 'interrupted' && keep) {
      await Promise.race([keepGateway(topology, node, files), interrupted]);
      await interrupted;
    }
    isOver = true;
    return 0;
  } catch (failure) {
    print(`\nThe quick start failed: ${failure instanceof Error ? failure.message : String(failure)}`);
    if (node !== undefined) print(await node.log().catch(() => ''));
    return 1;
  } finally {
    await node?.remove();
    await topology?.remove();
    await files?.remove();
    if (isOver)
      farewell('the node, three network namespaces, the pinned programs and all files', [
        ...(keep
          ? []
          : [[`${START} --keep`, 'the same, left running with traffic: look at it in the console'] as const]),
        [`${START} --cluster`, 'a tour with three nodes and etcd'],
        [`${WEIR} init --interfaces lan0,wan0 --mode audit`, 'on a gateway: a trial, which only records denies'],
      ]);
  }
}

/**
 * Used on machines that cannot enforce a policy. Prints the reasons, and runs a node that only serves the
 * API.
 */
async function apiOnly(sentences: readonly string[]): Promise<number> {
  print('Weir cannot enforce here:');
  for (const sentence of sentences) print(`   ${sentence}`);
  print(
    '\nThe API runs without a dataplane: it checks, stores and explains policies; each write returns the warning `not_enforced`.',
  );
  const folder = await temporaryFolder('api');
  try {
    const file = join(folder, 'weir.yaml');
    const listen = `127.0.0.1:${await freePort(8080)}`;
    const config = {
      version: 1,
      node: { id: 'node-a', data_dir: join(folder, 'data') },
      log: { format: 'pretty' },
      api: { listen },
    };
    await writeFile(file, JSON.stringify(config));
    print(`   curl -H "Authorization: Bearer $(cat ${folder}/data/admin.token)" http://${listen}/api/v1/policy`);
    print(
      `   ${WEIR} console --server http://${listen} --token-file ${folder}/data/admin.token   # a link to the console`,
    );
    print('Ctrl-C ends it.\n');
    const { run } = await import('#main.js');
    return await run(readConfig(file));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Returns the port `wanted`, or another free TCP port on loopback if `wanted` is in use. */
function freePort(wanted: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EADDRINUSE' && wanted !== 0) resolve(freePort(0));
      else reject(error);
    });
    server.listen(wanted, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}

async function tour(topology: Topology, node: NodeProcess, files: GatewayFiles): Promise<void> {
  print('Weir quick start: a client, a node that forwards and enforces, a server. All real, all on this machine.');
  print(`\n   client ${ADDRESSES.client} ── lan0 [ node, Weir ] wan0 ── ${ADDRESSES.server} server`);
  const server = topology.server.start(process.execPath, [program('tour-traffic'), 'serve', '80', '81']);
  await firstLine(server);
  await node.ready({ except: ['policy_ready'] });

  step(1, 'No policy yet: the node drops forwarded traffic.');
  await expectLine(topology, ['connect', ADDRESSES.server, '80'], 'refused ETIMEDOUT');
  result('client → server:80: no answer');

  step(2, 'A policy is written over HTTP: PUT /api/v1/policy allows TCP port 80 and ping, and denies the rest.');
  await put(node, policy([80]));

  step(3, 'The client opens a connection to port 80 and sends a number every 200 ms.');
  const flow = topology.client.start(process.execPath, [
    program('tour-traffic'),
    ...['connect', ADDRESSES.server, '80', '--every', '200', '--timeout', '1000'],
  ]);
  const lines = lineReader(flow);
  await lines.until((line) => line === 'open', 'the connection opens');
  await lines.until((line) => line === 'pong 3', 'three numbers come back');
  result('open; 1, 2, 3 came back: the flow passes');

  step(4, 'No rule allows another port of the same server.');
  await expectLine(topology, ['connect', ADDRESSES.server, '81'], 'refused ETIMEDOUT');
  result('client → server:81: no answer');

  step(5, 'The policy is changed over HTTP: port 81 is allowed instead of port 80.');
  await put(node, policy([81]));
  await lines.until((line) => line.startsWith('silent'), 'the flow dies');
  result('the flow is still open on both ends, but its packets are dropped: no number comes back');
  await expectLine(topology, ['connect', ADDRESSES.server, '81'], 'open');
  result('client → server:81: open');

  const stats = await node.request('GET', '/api/v1/stats');
  const dataplane = (stats.body as { dataplane: { packets: Record<string, number>; drops: Record<string, number> } })
    .dataplane;
  step(6, 'What the kernel counted (GET /api/v1/stats):');
  result(`packets ${JSON.stringify(dataplane.packets)}`);
  const drops = Object.fromEntries(Object.entries(dataplane.drops).filter(([, count]) => count > 0));
  result(`drops by reason ${JSON.stringify(drops)}`);
  flow.kill('SIGKILL');
  await gatewayAct(topology, node, files);
  await changeAct(topology, node, files.folder);
}
