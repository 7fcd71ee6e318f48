import { beforeAll, describe, expect, test } from 'vitest';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { datapathOptions } from './datapath-options.js';
import { addIpv6, IPV6 } from './ipv6.js';
import { topologyOfFile } from './topology-of-file.js';

const topology = topologyOfFile('v6review');
beforeAll(async () => {
  await addIpv6(topology);
  await topology.node.must('ip', 'link', 'add', 'port', 'type', 'veth', 'peer', 'name', 'beyond');
});

describe('the review of a node', () => {
  const ip = (command: string): Promise<string> => topology.node.must('ip', ...command.split(' '));
  const set = (setting: string, value: 0 | 1): Promise<string> =>
    topology.node.must('sh', '-c', `echo ${value} > /proc/sys/net/ipv6/conf/${setting}`);
  const review = (ipv6: 'drop' | 'enforce') =>
    new LocalDatapath(datapathOptions(topology.pinPath, { interfaces: ['lan0', 'wan0'], ipv6 })).review();

  test('with ipv6: enforce, the review reports an interface whose IPv6 packets the kernel forwards without its own setting', async () => {
    expect(review('enforce').faults).toEqual([]);
    await set('lan0/forwarding', 0);
    expect((await topology.client.run('ping', '-6', '-n', '-c', '1', '-W', '1', IPV6.server)).code).toBe(0);
    expect(review('enforce').faults).toEqual([
      'the node forwards IPv6 packets of lan0, but net.ipv6.conf.lan0.forwarding is 0, so the datapath finds no routes for them: set it to 1',
    ]);
    expect(review('drop').faults).toEqual([]);
    await set('all/forwarding', 0);
    expect((await topology.client.run('ping', '-6', '-n', '-c', '1', '-W', '0.3', IPV6.server)).code).not.toBe(0);
    expect(review('enforce').faults).toEqual([]);
    await set('all/forwarding', 1);
  });

  test('with ipv6: enforce, the review warns about an unpoliced interface that forwards IPv6 alone', async () => {
    const unpoliced = 'the node forwards packets from port without a policy: dataplane.interfaces does not contain it';
    for (const name of ['port', 'beyond']) await ip(`link set ${name} up`);
    expect(review('enforce').warnings).toEqual([]);
    await ip('addr add fd79::1/64 dev port nodad');
    expect(review('enforce').warnings).toEqual([unpoliced]);
    expect(review('drop').warnings).toEqual([]);
    await ip('addr del fd79::1/64 dev port');
    await ip('-6 route add fd80::/64 dev port');
    expect(review('enforce').warnings).toEqual([unpoliced]);
    await ip('-6 route del fd80::/64 dev port');
  });

  test('with ipv6: enforce, the review warns about a chain that translates the destination of IPv6 packets', async () => {
    const nft = (command: string) => topology.node.must('nft', ...command.split(' '));
    const chain = (family: string, hook: string) =>
      nft(`add chain ${family} other nat { type nat hook ${hook} priority -100 ; }`);
    const warnings = (ipv6: 'drop' | 'enforce') =>
      review(ipv6).warnings.filter((line) => line.includes('IPv6 packets'));
    await nft('add table ip6 other');
    await chain('ip6', 'prerouting');
    expect(warnings('enforce')).toEqual([]);
    await nft(`add rule ip6 other nat ip6 daddr ${IPV6.nodeLan} dnat to ${IPV6.server}`);
    expect(warnings('enforce')).toEqual([
      'nftables chain ip6 other nat may translate the destination of IPv6 packets: a new connection to an address of the node is dropped, and the policy decides another by the destination before the translation too',
    ]);
    expect(warnings('drop')).toEqual([]);
    await nft('delete table ip6 other');
  });
});
