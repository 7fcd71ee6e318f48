import { type NodeOptions, startNode } from '#cli/tour/node-process.js';
import { ADDRESSES, createTopology } from '#cli/tour/topology.js';
import type { Bench, Row } from './bench.js';
import { residentMiB } from './resident.js';

const RESTARTS = 5;
const IDLE_MS = 10_000;
const MAX_MS = { dataplane: 1_500, proxies: 2_000 } as const;

const POLICY = {
  default_policy: 'deny',
  source_groups: [
    {
      id: 'clients',
      mode: 'enforce',
      sources: { ips: [ADDRESSES.client] },
      rules: [{ id: 'ping', action: 'allow', match: { proto: 'icmp' } }],
    },
  ],
};

/** Configuration of a DNS proxy and a service plane. */
export const PROXIES = {
  dns: { listen: [`${ADDRESSES.nodeLan}:53`], upstreams: [`${ADDRESSES.server}:53`] },
  service_plane: { workers: 1 },
};

/** Measures the time from the start of a node until it is ready, and the memory of an idle node. */
export const startUpBench: Bench = {
  name: 'start-up',
  run: async () => [
    ...(await measured('dataplane', {}, MAX_MS.dataplane)),
    ...(await measured('dataplane, DNS proxy, service plane', { sections: PROXIES }, MAX_MS.proxies)),
  ],
};

async function measured(label: string, options: NodeOptions, atMost: number): Promise<readonly Row[]> {
  const topology = await createTopology('start');
  try {
    const began = performance.now();
    const node = await startNode(topology, options);
    try {
      await node.ready({ except: ['policy_ready'] });
      const first = performance.now() - began;
      const reply = await node.request('PUT', '/api/v1/policy', POLICY);
      if (reply.status >= 300) throw new Error(`PUT /api/v1/policy: ${reply.status} ${reply.text}`);
      const restarts: number[] = [];
      for (let round = 0; round < RESTARTS; round++) {
        await node.end('SIGTERM');
        const from = performance.now();
        await node.restart();
        await node.ready();
        restarts.push(performance.now() - from);
      }
      restarts.sort((a, b) => a - b);
      await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
      return [
        { what: `${label}: first start until ready`, value: first, unit: 'ms', atMost },
        {
          what: `${label}: restart until ready, median of ${RESTARTS}`,
          value: restarts[RESTARTS >> 1] ?? 0,
          unit: 'ms',
          atMost,
        },
        { what: `${label}: restart until ready, slowest`, value: restarts.at(-1) ?? 0, unit: 'ms' },
        { what: `${label}: resident when idle`, value: residentMiB(node.pid), unit: 'MiB' },
      ];
    } finally {
      await node.remove();
    }
  } finally {
    await topology.remove();
  }
}
