import { execFileSync } from 'node:child_process';
import { beforeAll, beforeEach, expect, test } from 'vitest';
import { LocalDatapath } from '#dataplane/thread/local-datapath.js';
import { LACKS, skipUnless } from '#test/skip-unless.js';
import { datapathOptions } from './datapath-options.js';
import { HAS_VLANS } from './link-types.js';
import { topologyOfFile } from './topology-of-file.js';

const sh = (command: string): void => void execFileSync('sh', ['-ec', command]);
// Debian's kernels have VLAN interfaces: `npm run old-kernel test/kernel/vlan-review.test.ts` runs this test.
skipUnless(HAS_VLANS, LACKS.vlans).describe('the review of a node with a VLAN interface', () => {
  const topology = topologyOfFile('vlan');
  beforeAll(() => {
    sh('ip link add link lan0 name lan0.10 type vlan id 10; ip addr add 10.77.9.1/24 dev lan0.10');
    sh('sysctl -qw net.ipv4.ip_forward=1');
  });
  beforeEach(() => sh('ip link set lan0.10 up'));

  const review = (...interfaces: string[]) =>
    new LocalDatapath(datapathOptions(topology.pinPath, { interfaces })).review();
  const fault =
    'lan0 drops the tagged frames of lan0.10: put lan0.10 into dataplane.interfaces instead of lan0, or remove the VLAN';

  test('the review of a node reports a fault for a VLAN interface on a policed interface, and no forwarded packets', () => {
    expect(review('lan0', 'wan0')).toEqual({ faults: [fault], warnings: [] });
    expect(review('lan0', 'lan0.10', 'wan0').faults).toEqual([fault]);
  });

  test('the review of a node reports no fault if the VLAN interface is down, or policed without its lower interface', () => {
    expect(review('lan0.10', 'wan0')).toEqual({
      faults: [],
      warnings: ['the node forwards packets from lan0 without a policy: dataplane.interfaces does not contain it'],
    });
    sh('ip link set lan0.10 down');
    expect(review('lan0', 'wan0').faults).toEqual([]);
  });

  test('the review of a node warns about a bridge with policed ports that filters VLANs', () => {
    sh('ip link add br0 type bridge vlan_filtering 1; ip link add p0 type veth peer name p1');
    sh('ip link set p0 master br0; ip link set br0 up; ip link set p0 up');
    const warning = 'bridge br0 filters VLANs (vlan_filtering): its policed ports drop tagged frames';
    expect(review('p0', 'lan0.10', 'wan0').warnings).toContain(warning);
    sh('ip link set br0 type bridge vlan_filtering 0');
    expect(review('p0', 'lan0.10', 'wan0').warnings).not.toContain(warning);
    sh('ip link del br0; ip link del p0');
  });
});
