import { afterAll, beforeAll, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { addIpv6, IPV6 } from '#test/kernel/ipv6.js';
import { DNS_SECTION, data, dig, startUpstream } from './names.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

/** No host has this address, so only the DNS proxy of the node can answer a DNS query to this address. */
const ELSEWHERE = '2001:db8::53';
const ANSWER = [`api.example.com. A ${ADDRESSES.server}`];

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('v6diverted', [], {
    dataplane: { ipv6: 'enforce' },
    sections: { dns: { ...DNS_SECTION, transparent: true } },
  });
  await addIpv6(rig.topology);
  await rig.topology.node.must('ip', '-6', 'route', 'add', 'default', 'via', IPV6.server);
  await startUpstream(rig);
  const lookup = { match: { dns_hostname: '*.example.com', proto: 'tcp', dst_ports: [443] } };
  await rig.put(policyOf([lookup], { sources: { ips: [IPV6.client] } }));
  await rig.node.ready();
});
afterAll(() => rig?.remove());

test.each([
  ['UDP', '+notcp'],
  ['TCP', '+tcp'],
])(
  'the DNS proxy answers a redirected query by IPv6 over %s from the address that the client queried',
  async (how, word) => {
    const found = await dig(rig, ELSEWHERE, word, 'api.example.com');
    expect(data(found)).toEqual(ANSWER);
    expect(found.text).toContain(`SERVER: ${ELSEWHERE}#53(${ELSEWHERE}) (${how})`);
    expect((await dig(rig, IPV6.server, word, 'other.example.org')).status).toBe('NXDOMAIN');
  },
);

test('while the node is dead, the datapath drops DNS queries by IPv6; after a restart they are answered', async () => {
  await rig.node.end('SIGKILL');
  const lookups = ['+notcp', '+tcp'].map((word) => dig(rig, ELSEWHERE, word, '+time=1', 'api.example.com'));
  expect((await Promise.all(lookups)).map(({ status }) => status)).toEqual(['none', 'none']);
  await rig.node.restart();
  await rig.node.ready();
  expect(data(await dig(rig, ELSEWHERE, 'api.example.com'))).toEqual(ANSWER);
  expect((await rig.stats()).drops.dns_proxy_absent).toBeGreaterThan(0);
});
