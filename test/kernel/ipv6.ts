import type { Topology } from '#cli/tour/topology.js';

export const IPV6 = {
  client: 'fd77:1::2',
  nodeLan: 'fd77:1::1',
  nodeWan: 'fd77:2::1',
  server: 'fd77:2::2',
  /** The link-local address that the node has on lan0 and on wan0. */
  linkLocal: 'fe80::1',
} as const;

/**
 * Gives the client, the node and the server IPv6 addresses and routes, and makes the node forward IPv6.
 * Duplicate address detection is off, so that the addresses are usable immediately.
 */
export async function addIpv6({ client, node, server }: Topology): Promise<void> {
  await node.must('sh', '-c', 'echo 1 > /proc/sys/net/ipv6/conf/all/forwarding');
  const ends = [
    [node, 'lan0', IPV6.nodeLan],
    [node, 'lan0', IPV6.linkLocal],
    [node, 'wan0', IPV6.nodeWan],
    [node, 'wan0', IPV6.linkLocal],
    [client, 'eth0', IPV6.client],
    [client, 'eth0', 'fe80::2'],
    [server, 'eth0', IPV6.server],
    [server, 'eth0', 'fe80::2'],
  ] as const;
  for (const [space, device, address] of ends)
    await space.must('ip', 'addr', 'replace', `${address}/64`, 'dev', device, 'nodad');
  await client.must('ip', '-6', 'route', 'replace', 'default', 'via', IPV6.nodeLan);
  await server.must('ip', '-6', 'route', 'replace', 'default', 'via', IPV6.nodeWan);
}
