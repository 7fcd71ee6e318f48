import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { ADDRESSES, createTopology, type Topology } from '#cli/topology.js';
import { detach } from '#dataplane/thread/detach.js';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { datapathOptions } from './datapath-options.js';
import { enterNamespace } from './namespace.js';
import { allowAll, denyAll } from './policies.js';

let topology: Topology;
let leave: () => void;
let datapath: LocalDatapath;
beforeAll(async () => {
  topology = await createTopology('translated');
  leave = enterNamespace(topology.node.name);
  await topology.node.must(
    'nft',
    `add table ip mine
add chain ip mine post { type nat hook postrouting priority 100; }
add rule ip mine post oifname "wan0" masquerade`,
  );
}, 60_000);
afterAll(async () => {
  leave();
  await topology.remove();
});
afterEach(() => {
  datapath.close();
  detach(topology.pinPath);
});

function police(...interfaces: readonly string[]): void {
  datapath = new LocalDatapath(datapathOptions(topology.pinPath, { interfaces, forwarding: 'auto' }));
  datapath.open();
  datapath.attach();
  datapath.stage(allowAll, 1);
  datapath.flip();
  datapath.look();
}

async function pings(): Promise<number> {
  const asked = ['-n', '-c', '2', '-i', '0.2', '-W', '1', ADDRESSES.server];
  const { stdout } = await topology.client.run('ping', ...asked);
  return Number(/(\d+) received/.exec(stdout)?.[1]);
}

test('a NAT gateway that polices only its inside interface passes requests and their replies according to the policy', async () => {
  police('lan0');
  expect(await pings()).toBe(2);
  datapath.stage(denyAll, 2);
  datapath.flip();
  expect(await pings()).toBe(0);
});
