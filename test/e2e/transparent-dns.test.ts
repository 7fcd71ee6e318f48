import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ADDRESSES } from '#cli/topology.js';
import { DNS_SECTION, data, dig, startUpstream } from './names.js';
import { createRig, policyOf, type Rig } from './rig.js';

const NO_ANSWER = 'refused ETIMEDOUT';
/** No host has this address, so only the DNS proxy can answer a lookup that is sent to it. */
const ELSEWHERE = '198.51.100.53';

let rig: Rig;
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
}, 120_000);
afterAll(() => rig?.remove());

/**
 * Sends a lookup over UDP and a lookup over TCP to the resolver. Returns the DNS status of each, `none`
 * without an answer.
 */
async function unanswered(): Promise<string[]> {
  const lookups = [[], ['+tcp']].map((words) => dig(rig, ADDRESSES.server, ...words, '+time=1', 'other.example.org'));
  return (await Promise.all(lookups)).map(({ status }) => status);
}

test('the answer to a diverted lookup comes from the address that the client queried, and the addresses in the answer are granted', async () => {
  expect(await rig.tcp(443)).toBe(NO_ANSWER);
  const found = await dig(rig, ELSEWHERE, 'api.example.com');
  expect(data(found)).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
  expect(found.text).toContain(`SERVER: ${ELSEWHERE}#53(${ELSEWHERE}) (UDP)`);
  expect(await rig.tcp(443)).toBe('open');
});

test('the answer to a diverted lookup over TCP comes from the address that the client queried', async () => {
  const found = await dig(rig, ELSEWHERE, '+tcp', 'api.example.com');
  expect(data(found)).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
  expect(found.text).toContain(`SERVER: ${ELSEWHERE}#53(${ELSEWHERE}) (TCP)`);
});

test('a diverted lookup of a denied name gets NXDOMAIN, and never reaches the resolver', async () => {
  expect((await dig(rig, ADDRESSES.server, 'other.example.org')).status).toBe('NXDOMAIN');
  expect((await dig(rig, ADDRESSES.server, '+tcp', 'other.example.org')).status).toBe('NXDOMAIN');
});

test('with transparent DNS, lookups to the address of the node are still answered', async () => {
  expect(data(await dig(rig, ADDRESSES.nodeLan, 'api.example.com'))).toEqual([
    `api.example.com. A ${ADDRESSES.server}`,
  ]);
});

test('POST /api/v1/policy/explain reports that a lookup is diverted, and that the queried name is unknown', async () => {
  const lookup = { src: ADDRESSES.client, dst: ELSEWHERE, proto: 'udp', src_port: 5_000, dst_port: 53 };
  const explained = async (question: object) =>
    (await rig.node.request('POST', '/api/v1/policy/explain', { ...lookup, ...question })).body;
  expect(await explained({})).toMatchObject({ decision: 'allow', walk: [], unknown: ['query'] });
  expect(await explained({ dst_port: 54 })).toMatchObject({ decision: 'deny', unknown: [] });
});

test('transparent DNS leaves direct forwarding in use', async () => {
  const reply = await rig.node.request('GET', '/api/v1/stats');
  const { forwarding } = (reply.body as { dataplane: { forwarding: { way: string; reason: string } } }).dataplane;
  expect(forwarding.way).toBe('direct');
});

test('while the DNS proxy is dead, the datapath drops lookups and does not forward them', async () => {
  await rig.node.end('SIGKILL');
  expect(await unanswered()).toEqual(['none', 'none']);
  expect(await rig.tcp(443)).toBe('open');
  await rig.node.restart();
  await rig.node.ready();
  expect(data(await dig(rig, ELSEWHERE, 'api.example.com'))).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
  const drops = (await rig.stats()).drops;
  expect(drops.dns_proxy_absent).toBeGreaterThan(0);
});

test('the node restores a removed routing rule for diverted lookups', async () => {
  await rig.topology.node.must('ip', 'rule', 'del', 'pref', '8353');
  const rules = (): Promise<string> => rig.topology.node.must('ip', 'rule', 'show', 'pref', '8353');
  await expect.poll(rules, { timeout: 10_000 }).toContain('lookup 8353');
  await rig.node.ready();
  expect(data(await dig(rig, ELSEWHERE, 'api.example.com'))).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
});

test('the node restores a removed route for diverted lookups', async () => {
  await rig.topology.node.must('ip', 'route', 'flush', 'table', '8353');
  const routes = (): Promise<string> => rig.topology.node.must('ip', 'route', 'show', 'table', 'all');
  await expect.poll(routes, { timeout: 10_000 }).toContain('table 8353');
  await rig.node.ready();
  expect(data(await dig(rig, ELSEWHERE, 'api.example.com'))).toEqual([`api.example.com. A ${ADDRESSES.server}`]);
});

describe('the routing of diverted lookups', () => {
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
  ])('is restored on a node that owns 192.0.2.1 after %s was removed', async (_, remove, show, expected) => {
    await on('addr add 192.0.2.1/24 dev lo');
    try {
      await on(remove);
      await expect.poll(() => on(show), { timeout: 10_000 }).toContain(expected);
      await rig.node.ready();
      await answered();
    } finally {
      await on('addr del 192.0.2.1/24 dev lo');
    }
  });

  test('is reported by readiness as faulty while another routing rule takes the redirected packets first', async () => {
    await on('rule add pref 100 fwmark 0x200000/0x200000 lookup main');
    try {
      await expect.poll(config, { timeout: 10_000 }).toMatch(/^false .*: ip rule 100 comes before rule 8353/);
      expect(await unanswered()).toEqual(['none', 'none']);
    } finally {
      await on('rule del pref 100');
    }
    await rig.node.ready();
    await answered();
  });
});

test('while the process is stopped and the routing rule is missing, a lookup is not forwarded', async () => {
  const { node } = rig.topology;
  const process = `weir.js run --config ${rig.node.folder}`;
  await node.must('pkill', '-STOP', '-f', process);
  try {
    await node.must('ip', 'rule', 'del', 'pref', '8353');
    expect(await unanswered()).toEqual(['none', 'none']);
  } finally {
    await node.must('pkill', '-CONT', '-f', process);
  }
});
