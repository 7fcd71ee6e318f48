import { fileURLToPath } from 'node:url';
import { firstLine, type NodeProcess } from '#cli/tour/node-process.js';
import { SERVER_NAME } from '#test/service-plane/certificates.js';
import type { Bench, Row } from './bench.js';
import { named } from './inspection/load.js';
import { createSite, LARGE_BYTES, PORTS, type Site } from './inspection/site.js';
import { startWeir } from './inspection/weir.js';
import { residentMiB } from './resident.js';

const IDLE_CONNECTIONS = 10_000;
const SAMPLE_MS = 250;
const SETTLE_MS = 3_000;
/**
 * The bound for the growth of the node's resident memory while the node forwards a body of 10 GiB, in MiB.
 * Resident memory does not contain buffers of the kernel.
 */
const LARGE_MIB = 64;

/**
 * Measures the memory of the node for intercepted connections: for one body of 10 GiB, and for each idle
 * connection.
 */
export const inspectionMemoryBench: Bench = { name: 'inspection-memory', run: measure };

async function measure(): Promise<readonly Row[]> {
  const site = await createSite('memory');
  let node: NodeProcess | undefined;
  try {
    node = await startWeir(site, 1);
    return [...(await largeBody(site, node)), ...(await idleConnections(site, node))];
  } finally {
    await node?.remove();
    await site.remove();
  }
}

async function largeBody(site: Site, { pid }: NodeProcess): Promise<readonly Row[]> {
  const curl = `curl -sk -o /dev/null -w '%{size_download} %{time_total}' https://${SERVER_NAME}:${PORTS.direct}/large`;
  const before = residentMiB(pid);
  let most = before;
  const sampling = setInterval(() => {
    most = Math.max(most, residentMiB(pid));
  }, SAMPLE_MS);
  const stdout = await named(site, curl);
  clearInterval(sampling);
  const [bytes = 0, seconds = 1] = stdout.split(' ').map(Number);
  if (bytes !== LARGE_BYTES) throw new Error(`the client received ${bytes} of ${LARGE_BYTES} bytes`);
  return [
    { what: 'a body of 10 GiB: growth of the resident memory', value: most - before, unit: 'MiB', atMost: LARGE_MIB },
    { what: 'a body of 10 GiB: throughput', value: bytes / seconds / 2 ** 20, unit: 'MiB/s' },
  ];
}

async function idleConnections({ topology }: Site, { pid }: NodeProcess): Promise<readonly Row[]> {
  const before = residentMiB(pid);
  const program = fileURLToPath(new URL('./inspection/idle-process.js', import.meta.url));
  const client = topology.client.start(process.execPath, [program, String(IDLE_CONNECTIONS)]);
  client.stderr?.on('data', (chunk: Buffer) => console.error(chunk.toString()));
  const held = Number(await firstLine(client));
  if (held !== IDLE_CONNECTIONS) throw new Error(`${held} of ${IDLE_CONNECTIONS} connections are established`);
  await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
  const after = residentMiB(pid);
  client.kill('SIGKILL');
  return [
    { what: 'idle intercepted connections', value: held, unit: '', atLeast: IDLE_CONNECTIONS },
    {
      what: 'memory of an idle intercepted connection, both sides',
      value: ((after - before) * 1024) / held,
      unit: 'KiB',
    },
  ];
}
