import { type NodeProcess, startNode } from '#cli/tour/node-process.js';
import { ADDRESSES } from '#cli/tour/topology.js';
import { PORTS, PROXY_CPU, type Site } from './site.js';

/**
 * Starts a Weir node with `workers` service-plane threads. The policy intercepts connections of the client to
 * the server.
 */
export async function startWeir({ topology, rootFile }: Site, workers: number): Promise<NodeProcess> {
  const node = await startNode(topology, {
    ...(workers === 1 ? { cpu: PROXY_CPU } : {}),
    sections: { service_plane: { upstream_ca: rootFile, workers } },
  });
  await node.ready({ except: ['policy_ready'] });
  await node.request('POST', '/api/v1/settings/tls-intercept-ca/generate');
  const tls = { mode: 'intercept', http: { request: { methods: ['GET'], path: { prefix: ['/'] } } } };
  const rules = [{ id: 'web', action: 'allow', match: { proto: 'tcp', dst_ports: [PORTS.direct], tls } }];
  const group = { id: 'clients', mode: 'enforce', sources: { ips: [ADDRESSES.client] }, rules };
  const reply = await node.request('PUT', '/api/v1/policy', { default_policy: 'deny', source_groups: [group] });
  if (reply.status >= 300) throw new Error(`PUT /api/v1/policy: ${reply.status} ${reply.text}`);
  await node.ready();
  return node;
}
