import { afterEach, expect, test } from 'vitest';
import { addIpv6, IPV6 } from '#test/kernel/ipv6.js';
import { createRig, type NodeRig } from './rig.js';

let rig: NodeRig | undefined;
afterEach(() => rig?.remove());

const WARNING = 'dataplane.non_ipv4: pass does not pass IPv6';
type Line = { readonly level: number | string; readonly msg: string };

test.each([
  ['non_ipv4: pass and no key ipv6', { non_ipv4: 'pass' }, { pings: false, warnings: 1 }],
  ['ipv6: pass and non_ipv4: drop', { ipv6: 'pass', non_ipv4: 'drop' }, { pings: true, warnings: 0 }],
])(
  'a node forwards IPv6 only by the setting dataplane.ipv6, and logs a warning at its start if the file seems to pass IPv6: %s',
  async (_, dataplane, { pings, warnings }) => {
    rig = await createRig('ipv6set', [], { dataplane });
    await rig.put({ default_policy: 'deny' });
    await rig.node.ready();
    await addIpv6(rig.topology);
    const { code } = await rig.topology.client.run('ping', '-6', '-c', '1', '-W', '1', IPV6.server);
    expect(code === 0).toBe(pings);
    const { drops } = await rig.stats();
    expect([(drops.ipv6 ?? 0) > 0, drops.non_ipv4]).toEqual([!pings, 0]);
    const lines = (await rig.node.log()).split('\n').filter((line) => line.includes(WARNING));
    expect(lines.map((line) => (JSON.parse(line) as Line).level)).toEqual(Array.from({ length: warnings }, () => 40));
  },
);
