import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { DatapathNode } from './datapath-node.js';
import { allowAll, denyAll } from './policies.js';

let node: DatapathNode;
beforeAll(async () => {
  node = await DatapathNode.create('translated');
  await node.topology.node.must(
    'nft',
    `add table ip mine
add chain ip mine post { type nat hook postrouting priority 100; }
add rule ip mine post oifname "wan0" masquerade`,
  );
});
afterAll(() => node.remove());
afterEach(() => node.detach());

async function pings(): Promise<number> {
  const asked = ['-n', '-c', '2', '-i', '0.2', '-W', '1', ADDRESSES.server];
  const { stdout } = await node.topology.client.run('ping', ...asked);
  return Number(/(\d+) received/.exec(stdout)?.[1]);
}

test('a NAT gateway that polices only its inside interface passes requests and their replies according to the policy', async () => {
  const datapath = node.open({ interfaces: ['lan0'], forwarding: 'auto' });
  node.enforce(allowAll);
  datapath.look();
  expect(await pings()).toBe(2);
  node.enforce(denyAll);
  expect(await pings()).toBe(0);
});
