import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/tour/topology.js';
import { DNS_SECTION, data, dig, startUpstream } from './names.js';
import { createRig, type NodeRig, policyOf } from './rig.js';

const NO_ANSWER = 'refused ETIMEDOUT';
/** No host has this address, so only the DNS proxy of the node can answer a DNS query to this address. */
const ELSEWHERE = '198.51.100.53';

let rig: NodeRig;
beforeAll(async () => {
  rig = await createRig('diverted', [443], {
    sections: {
      dns: { ...DNS_SECTION, transparent: true },
    },
  });
  await rig.topology.node.must('ip', 'route', 'add', 'default', 'via', ADDRESSES.server);
  await startUpstream(rig);
  await rig.put(policyOf([{ match: { dns_hostname: '*.example.com', proto: 'tcp', dst_ports: [443] } }]));
  await rig.node.ready();
});
afterAll(() => rig?.remove());

/**
 * Sends a DNS query over UDP and a DNS query over TCP to the resolver. Returns the two DNS statuses; a status
 * is `none` without an answer.
 */
async function unanswered(): Promise<string[]> {
  const lookups = [[], ['+tcp']].map((words) => dig(rig, ADDRESSES.server, ...words, '+time=1', 'other.example.org'));
  return (await Promise.all(lookups)).map(({ status }) => status);
}

test('the DNS proxy answers a redirected query from the address that the client queried, and grants the answered addresses to the client', async () => {
  expect(await rig.tcp(443)).toBe(NO_ANSWER);
  const found = await dig(rig, ELSEWHERE, 'api.example.com');
  expect(data(found)).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
  expect(found.text).toContain(`SERVER: ${ELSEWHERE}#53(${ELSEWHERE}) (UDP)`);
  expect(await rig.tcp(443)).toBe('open');
});

test('the DNS proxy answers a redirected DNS query over TCP from the address that the client queried', async () => {
  const found = await dig(rig, ELSEWHERE, '+tcp', 'api.example.com');
  expect(data(found)).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
  expect(found.text).toContain(`SERVER: ${ELSEWHERE}#53(${ELSEWHERE}) (TCP)`);
});

test('a redirected DNS query for a denied name gets NXDOMAIN from the DNS proxy instead of the answer of the resolver', async () => {
  expect((await dig(rig, ADDRESSES.server, 'other.example.org')).status).toBe('NXDOMAIN');
  expect((await dig(rig, ADDRESSES.server, '+tcp', 'other.example.org')).status).toBe('NXDOMAIN');
});

test('with transparent DNS, the DNS proxy also answers DNS queries to the address of the node', async () => {
  expect(data(await dig(rig, ADDRESSES.nodeLan, 'api.example.com'))).toEqual([
    `api.example.com. A ${ADDRESSES.server}`,
  ]);
});

test('POST /api/v1/policy/explain reports for a packet to UDP port 53 that the packet is allowed and that the queried name is unknown', async () => {
  const lookup = { src: ADDRESSES.client, dst: ELSEWHERE, proto: 'udp', src_port: 5_000, dst_port: 53 };
  const explained = async (question: object) =>
    (await rig.node.request('POST', '/api/v1/policy/explain', { ...lookup, ...question })).body;
  expect(await explained({})).toMatchObject({ decision: 'allow', walk: [], unknown: ['query'] });
  expect(await explained({ dst_port: 54 })).toMatchObject({ decision: 'deny', unknown: [] });
});

test('with transparent DNS, the datapath still forwards packets directly', async () => {
  const reply = await rig.node.request('GET', '/api/v1/stats');
  const { forwarding } = (reply.body as { dataplane: { forwarding: { way: string; reason: string } } }).dataplane;
  expect(forwarding.way).toBe('direct');
});

test('while the node is dead, the datapath drops DNS queries and does not forward them to the resolver', async () => {
  await rig.node.end('SIGKILL');
  expect(await unanswered()).toEqual(['none', 'none']);
  expect(await rig.tcp(443)).toBe('open');
  await rig.node.restart();
  await rig.node.ready();
  expect(data(await dig(rig, ELSEWHERE, 'api.example.com'))).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
  const drops = (await rig.stats()).drops;
  expect(drops.dns_proxy_absent).toBeGreaterThan(0);
});

test.each([
  ['rule', 'lookup 8353', ['ip', 'rule', 'del', 'pref', '8353'], ['ip', 'rule', 'show', 'pref', '8353']],
  ['route', 'table 8353', ['ip', 'route', 'flush', 'table', '8353'], ['ip', 'route', 'show', 'table', 'all']],
] as const)(
  'the node restores its routing %s for redirected DNS queries after another process has removed it',
  async (_, restored, [remover, ...removal], [shower, ...shown]) => {
    await rig.topology.node.must(remover, ...removal);
    await expect.poll(() => rig.topology.node.must(shower, ...shown)).toContain(restored);
    await rig.node.ready();
    expect(data(await dig(rig, ELSEWHERE, 'api.example.com'))).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
  },
);

describe('the routing of redirected DNS queries', () => {
  const answered = async (): Promise<void> =>
    expect(data(await dig(rig, ELSEWHERE, 'api.example.com'))).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
  const config = async (): Promise<string> => {
    const { body } = await rig.node.request('GET', '/ready');
    const { checks } = body as { checks: { name: string; ok: boolean; detail: string }[] };
    const found = checks.find(({ name }) => name === 'dataplane_config');
    return `${found?.ok} ${found?.detail}`;
  };
  const on = (command: string): Promise<string> => rig.topology.node.must('ip', ...command.split(' '));

  test.each([
    ['the rule', 'rule del pref 8353', 'rule show pref 8353', 'lookup 8353'],
    ['the route', 'route flush table 8353', 'route show table all', 'table 8353'],
  ])(
    'on a node with the address 192.0.2.1, the routing of redirected DNS queries is restored after a part of it (%s) was removed',
    async (_, remove, show, expected) => {
      await on('addr add 192.0.2.1/24 dev lo');
      try {
        await on(remove);
        await expect.poll(() => on(show)).toContain(expected);
        await rig.node.ready();
        await answered();
      } finally {
        await on('addr del 192.0.2.1/24 dev lo');
      }
    },
  );

  test('GET /ready reports a fault while a third-party routing rule with precedence matches redirected DNS queries', async () => {
    await on('rule add pref 100 fwmark 0x200000/0x200000 lookup main');
    try {
      await expect.poll(config).toMatch(/^false .*: ip rule 100 precedes rule 8353/);
      expect(await unanswered()).toEqual(['none', 'none']);
    } finally {
      await on('rule del pref 100');
    }
    await rig.node.ready();
    await answered();
  });
});

test('without a default route, DNS queries to an unroutable server are counted with a warning; with an unreachable default route, they are answered', async () => {
  const route = (words: string): Promise<string> => rig.topology.node.must('ip', ...`route ${words}`.split(' '));
  const config = async (): Promise<string> => {
    const { body } = await rig.node.request('GET', '/ready');
    const { checks } = body as { checks: { name: string; ok: boolean; detail: string }[] };
    return checks.find(({ name }) => name === 'dataplane_config')?.detail ?? '';
  };
  const unroutable = async (): Promise<number> => {
    const { dns_unroutable } = (await rig.stats()) as unknown as { dns_unroutable: { packets: number } };
    return dns_unroutable.packets;
  };
  expect(await config()).not.toContain('no default route');
  const before = await unroutable();
  await route(`del default via ${ADDRESSES.server}`);
  try {
    await expect.poll(config).toContain('the node has no default route');
    expect((await dig(rig, ELSEWHERE, '+time=1', 'api.example.com')).status).toBe('none');
    expect((await dig(rig, ELSEWHERE, '+tcp', '+time=1', 'api.example.com')).status).toBe('none');
    expect(await unroutable()).toBeGreaterThanOrEqual(before + 2);
    await route('add unreachable default metric 4294967295');
    await expect.poll(config).not.toContain('no default route');
    expect(data(await dig(rig, ELSEWHERE, 'api.example.com'))).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
    expect(data(await dig(rig, ELSEWHERE, '+tcp', 'api.example.com'))).toEqual([
      `api.example.com. A ${ADDRESSES.server}`,
    ]);
  } finally {
    await route('del unreachable default metric 4294967295').catch(() => {});
    await route(`add default via ${ADDRESSES.server}`);
  }
  const counted = await unroutable();
  expect(data(await dig(rig, ADDRESSES.nodeLan, 'api.example.com'))).toEqual([
    `api.example.com. A ${ADDRESSES.server}`,
  ]);
  expect(await unroutable()).toBe(counted);
});

test('while the node process is suspended and the routing rule is missing, a DNS query is not forwarded to the resolver', async () => {
  const { node } = rig.topology;
  process.kill(rig.node.pid, 'SIGSTOP');
  try {
    await node.must('ip', 'rule', 'del', 'pref', '8353');
    expect(await unanswered()).toEqual(['none', 'none']);
  } finally {
    process.kill(rig.node.pid, 'SIGCONT');
  }
});
