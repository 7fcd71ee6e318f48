import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { ADDRESSES, namespaceOf } from '#cli/tour/topology.js';
import { flowtables } from '#dataplane/guard/nftables.js';
import { hasNetfilterPrograms } from '#dataplane/loader/kernel-functions.js';
import { flowtableFaults } from '#dataplane/review/review.js';
import { TCP } from '#test/dataplane/frame.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { enterNamespace } from './namespace.js';
import { NatNode, only, tcp, udp } from './nat-node.js';
import { denyAll } from './policies.js';

const { client, nodeWan, server } = ADDRESSES;
const PORT = 8_000;
/** The node forwards this port of its address to PORT of the client. */
const PUBLIC = 9_000;
const DNAT = `add rule ip mine pre ip daddr ${nodeWan} udp dport ${PUBLIC} dnat to ${client}:${PORT}`;
const FLOWTABLE = (devices: string, flags = ''): string =>
  `add flowtable ip mine f { hook ingress priority 0; devices = { ${devices} }; ${flags} }`;

/** Returns whether the kernel has flowtables (nf_flow_table and nft_flow_offload). */
async function hasFlowtables(): Promise<boolean> {
  const space = await namespaceOf('flowtable');
  const rules = 'add table ip t; add flowtable ip t f { hook ingress priority 0; devices = { lo }; }';
  const chain = 'add chain ip t c { type filter hook forward priority 0; }; add rule ip t c flow add @f';
  const { code } = await space.run('nft', `${rules}; ${chain}`);
  await space.remove();
  return code === 0;
}
const exists = await hasFlowtables();

test('an nftables flowtable with the flag offload that contains a policed interface is a fault', () => {
  const flowtable = { family: 'ip', table: 'mine', name: 'f', offloads: true, devices: ['lan0', 'wan0'] } as const;
  const policed = [{ name: 'wan0' }];
  expect(flowtableFaults(policed, [flowtable])).toEqual([
    'flowtable ip mine f has the flag offload, so the network card forwards flows of wan0 without the datapath: remove the flag, or remove wan0 from the flowtable',
  ]);
  expect(flowtableFaults(policed, [{ ...flowtable, offloads: false }])).toEqual([]);
  expect(flowtableFaults([{ name: 'eth9' }], [flowtable])).toEqual([]);
});

skipUnless(exists, LACKS.flowtables).test(
  'the nftables flowtables of the kernel are listed with their flag and their interfaces',
  async () => {
    const space = await namespaceOf('flowtables');
    // A veth device has no driver for the flag offload, so the flowtable with the flag has no device.
    await space.must(
      'nft',
      `add table ip mine
add flowtable ip mine soft { hook ingress priority 0; devices = { lo }; }
add flowtable ip mine hard { hook ingress priority 0; flags offload; }
add table ip6 other
add flowtable ip6 other hard { hook ingress priority 0; flags offload; }`,
    );
    const leave = enterNamespace(space.name);
    const found = flowtables(['ipv4', 'ipv6']);
    expect(flowtables()).toEqual(found.slice(0, 2));
    leave();
    await space.remove();
    expect(found).toEqual([
      { family: 'ip', table: 'mine', name: 'soft', offloads: false, devices: ['lo'] },
      { family: 'ip', table: 'mine', name: 'hard', offloads: true, devices: [] },
      { family: 'ip6', table: 'other', name: 'hard', offloads: true, devices: [] },
    ]);
  },
);

skipUnless(exists, LACKS.flowtables).describe('software flowtables', () => {
  let node: NatNode;
  /** The source port of the flows of one test. */
  let port = 5_000;
  beforeAll(async () => {
    node = await NatNode.create('nat-flowtable');
  });
  beforeEach(async () => {
    port++;
    await node.begin(
      FLOWTABLE('lan0, wan0'),
      'add counter ip mine forwarded',
      'add rule ip mine after counter name forwarded',
      'add rule ip mine after meta l4proto { tcp, udp } flow add @f',
      'add rule ip mine post oifname "wan0" masquerade',
      // Kernels without netfilter programs do not support DNAT.
      ...(hasNetfilterPrograms() ? [DNAT] : []),
    );
  });
  afterAll(() => node?.remove());

  test('a software flowtable forwards masqueraded flows that the ingress hook has allowed, and a policy change cuts these flows', async () => {
    node.police(only(client, [server, PORT]));
    expect(node.datapath.review().faults).toEqual([]);
    const request = udp([client, port], [server, PORT]);
    const reply = udp([server, PORT], [nodeWan, port]);
    const passBoth = async (): Promise<void> => {
      await node.passes('client', request, 'server', `udp ${nodeWan}:${port} > ${server}:${PORT}`);
      await node.passes('server', reply, 'client', `udp ${server}:${PORT} > ${client}:${port}`);
    };
    await passBoth();
    await passBoth();
    const before = await node.count('forwarded');
    for (let count = 0; count < 5; count++) await passBoth();
    expect(await node.count('forwarded')).toBe(before);
    node.enforce(denyAll);
    // The flowtable still has the flow after the datapath has suspended its own.
    for (let count = 0; count < 3; count++) {
      await node.isDropped('server', reply, 'policy_deny');
      await node.isDropped('client', request, 'policy_deny');
    }
  });

  test('a software flowtable forwards an allowed TCP connection, and a policy change cuts the connection', async () => {
    node.police(only(client, [server, PORT]));
    const sent = (flags: number) => tcp([client, port], [server, PORT], flags);
    const back = (flags: number) => tcp([server, PORT], [nodeWan, port], flags);
    const [out, inward] = [`tcp ${nodeWan}:${port} > ${server}:${PORT}`, `tcp ${server}:${PORT} > ${client}:${port}`];
    await node.passes('client', sent(TCP.syn), 'server', `${out} syn`);
    await node.passes('server', back(TCP.syn | TCP.ack), 'client', `${inward} syn+ack`);
    for (let count = 0; count < 5; count++) {
      await node.passes('client', sent(TCP.ack), 'server', `${out} ack`);
      await node.passes('server', back(TCP.ack), 'client', `${inward} ack`);
    }
    node.enforce(denyAll);
    await node.isDropped('server', back(TCP.ack), 'policy_deny');
    await node.isDropped('client', sent(TCP.ack), 'policy_deny');
  });

  skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
    'a software flowtable forwards an allowed connection by DNAT, and a policy change cuts the connection',
    async () => {
      node.police(only(server, [client, PORT]));
      const request = udp([server, port], [nodeWan, PUBLIC]);
      const answer = udp([client, PORT], [server, port]);
      for (let count = 0; count < 5; count++) {
        await node.passes('server', request, 'client', `udp ${server}:${port} > ${client}:${PORT}`);
        await node.passes('client', answer, 'server', `udp ${nodeWan}:${PUBLIC} > ${server}:${port}`);
      }
      node.enforce(denyAll);
      for (let count = 0; count < 3; count++) {
        await node.isDropped('server', request, 'policy_deny');
        await node.isDropped('client', answer, 'policy_deny');
      }
    },
  );

  skipUnless(hasNetfilterPrograms(), LACKS.netfilterPrograms).test(
    'a software flowtable is a fault if the node cannot search conntrack',
    async () => {
      node.police(only(server, [client, PORT]), { readsConntrack: false });
      expect(node.datapath.review().faults.join()).toMatch(/flowtable ip mine f is not supported with NAT here/);
    },
  );
});
