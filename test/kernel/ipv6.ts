import { type Namespace, namespaceOf, type Topology } from '#cli/tour/topology.js';

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

export const FAR = { host: 'fd77:3::2', gateway: 'fd77:3::1' } as const;

/**
 * Makes a host behind the server, over a link with an MTU of 1280 bytes. The host offers segments of 1,440
 * bytes, so that the path needs packet-too-big.
 */
export async function addFar({ node, server }: Topology): Promise<Namespace> {
  const far = await namespaceOf('v6far');
  await server.must(
    'sh',
    '-ec',
    `echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
     ip link add far0 mtu 1280 type veth peer name eth0 netns ${far.name}
     ip link set far0 up; ip addr add ${FAR.gateway}/64 dev far0 nodad`,
  );
  await far.must(
    'sh',
    '-ec',
    `ip link set eth0 up; ip addr add ${FAR.host}/64 dev eth0 nodad; ip -6 route add default via ${FAR.gateway} mtu 1280 advmss 1440`,
  );
  await node.must('ip', '-6', 'route', 'add', 'fd77:3::/64', 'via', IPV6.server);
  return far;
}
