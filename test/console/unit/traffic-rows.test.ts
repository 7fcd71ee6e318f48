import { expect, test } from 'vitest';
import { mapOf, portClass } from '../../../console/src/pages/traffic/map-data.js';
import type { Message } from '../../../console/src/pages/traffic/message.js';
import { countOf } from '../../../console/src/pages/traffic/row.js';
import { TrafficRows } from '../../../console/src/pages/traffic/rows.js';

const START = 1_800_000_000_000;
const flow = (more: Partial<Message> = {}): Message => ({
  ...{ type: 'flow', src: '10.1.0.7', src_port: 50_001, dst: '10.2.0.2', dst_port: 443, proto: 6 },
  ...{ verdict: 'allow', effective_action: 'allow', source_group: 'office', rule: 'web', decided_by: 'rule' },
  ...more,
});
const denied: Partial<Message> = { type: 'verdict', verdict: 'deny', effective_action: 'deny', rule: 'no-telnet' };

test('wiretap messages that differ only in time and source port are one row of the page Traffic, with a count and the latest five messages', () => {
  const rows = new TrafficRows();
  for (let at = 0; at < 8; at++) rows.add(flow({ src_port: 50_000 + at }), START + at);
  rows.add(flow({ dst_port: 80 }), START + 9);
  const [row, other] = rows.ordered('count', START + 10);
  expect([rows.size, rows.seen, row && countOf(row), other && countOf(other)]).toEqual([2, 9, 8, 1]);
  expect(row?.latest.map(({ port }) => port)).toEqual([50_003, 50_004, 50_005, 50_006, 50_007]);
});

test('the messages about the begin and the end of a flow count as one flow in the traffic table, and the bytes come from the end message', () => {
  const rows = new TrafficRows();
  rows.add(flow(), START);
  rows.add(flow({ type: 'flow_end', packets: { forward: 3, reply: 2 }, bytes: { forward: 300, reply: 200 } }), START);
  const [row] = rows.ordered('recent', START);
  expect(row).toMatchObject({ packets: 5, bytes: 500 });
  expect(row && countOf(row)).toBe(1);
});

test('a wiretap message that represents several equal messages increases the count of its row by their number', () => {
  const rows = new TrafficRows();
  rows.add(
    { type: 'dns', src: '10.1.0.7', hostname: 'a.example', query_type: 'A', verdict: 'allow', count: 40 },
    START,
  );
  expect(rows.seen).toBe(40);
  expect(rows.ordered('count', START)[0]).toMatchObject({ opened: 40, to: 'a.example', subject: 'lookup A' });
});

test('the traffic table has separate rows for allowed, denied and only reported (audit) flows, and does not show a flow that a user has cut as denied', () => {
  const rows = new TrafficRows();
  rows.add(flow(), START);
  rows.add(flow({ verdict: 'audit' }), START);
  rows.add(flow(denied), START);
  rows.add(flow({ type: 'flow_end', effective_action: 'deny', reason: 'cut' }), START);
  expect(
    rows
      .ordered('recent', START)
      .map(({ outcome }) => outcome)
      .sort(),
  ).toEqual(['allow', 'deny', 'would_deny']);
});

test('messages about lost events are summed by the place of the loss, and are not rows of the traffic table', () => {
  const rows = new TrafficRows();
  rows.add({ type: 'lost', count: 7, where: 'reader' }, START);
  rows.add({ type: 'lost', count: 5, where: 'reader' }, START);
  rows.add({ type: 'node_gone', node_id: 'node-b', reason: 'no response' }, START);
  expect([...rows.lost]).toEqual([['reader', 12]]);
  expect([...rows.silentNodes]).toEqual([['node-b', 'no response']]);
  expect([rows.size, rows.seen]).toEqual([0, 0]);
});

test('active rows of the traffic table do not change their order with each message, and a row that becomes active again is first', () => {
  const rows = new TrafficRows();
  const order = (at: number) => rows.ordered('recent', START + at).map(({ message }) => message.dst_port);
  rows.add(flow({ dst_port: 1 }), START);
  rows.add(flow({ dst_port: 2 }), START + 1);
  rows.add(flow({ dst_port: 3 }), START + 2);
  rows.add(flow({ dst_port: 1 }), START + 3_000);
  expect(order(3_001)).toEqual([3, 2, 1]);
  // Rows 2 and 3 are idle now.
  expect(order(6_000)).toEqual([1, 3, 2]);
  rows.add(flow({ dst_port: 2 }), START + 6_001);
  expect(order(6_002)).toEqual([2, 1, 3]);
});

test('the traffic table keeps at most 4,000 rows, and removes the oldest ones', () => {
  const rows = new TrafficRows();
  for (let port = 0; port < 10_000; port++) rows.add(flow({ dst_port: port }), START + port);
  expect(rows.size).toBeLessThanOrEqual(4_000);
  expect(rows.removed + rows.size).toBe(10_000);
  expect(rows.ordered('recent', START + 10_000)[0]?.message.dst_port).toBe(9_999);
});

test('the message rate of the traffic table is the average of the last seconds, and falls to zero without messages', () => {
  const rows = new TrafficRows();
  rows.rateAt(START);
  for (let second = 1; second <= 12; second++) {
    for (let each = 0; each < 100; each++) rows.add(flow(), START);
    rows.rateAt(START + second * 1_000);
  }
  expect(rows.rate).toBeGreaterThan(95);
  expect(rows.rate).toBeLessThan(101);
  for (let second = 13; second <= 40; second++) rows.rateAt(START + second * 1_000);
  expect([rows.rate, rows.ordered('rate', START)[0]?.rate]).toEqual([0, 0]);
});

test('the traffic map has source groups, destinations by name, and a line for each class of ports and each outcome', () => {
  const rows = new TrafficRows();
  rows.add(flow({ dst_names: ['shop.example.com'] }), START);
  rows.add(flow({ dst_names: ['shop.example.com'], dst_port: 80 }), START);
  rows.add(flow({ ...denied, dst_port: 23 }), START);
  const byDefault = { ...denied, source_group: null, rule: null, decided_by: 'policy_default', dst_port: 22 };
  rows.add(flow(byDefault), START);
  rows.add(flow({ ...byDefault, source_groups: [], dst_port: 21 }), START);
  rows.add(flow({ ...byDefault, source_groups: ['office'] }), START);
  const { groups, destinations, lines } = mapOf(rows.ordered('count', START), 30);
  expect(groups.map(({ label }) => label)).toEqual(['in no group', 'no group decided', 'office']);
  expect(destinations.map(({ filter }) => filter)).toEqual(['dst:10.2.0.2', 'hostname:shop.example.com']);
  expect(lines.map(({ from, ports, outcome, count }) => [from, ports, outcome, count]).sort()).toEqual([
    ['-', 'shell', 'deny', 1],
    ['group office', 'shell', 'deny', 2],
    ['group office', 'web', 'allow', 2],
    ['in no group', 'files', 'deny', 1],
  ]);
});

test('a traffic map of many destinations combines addresses of the same network, and the rarest destinations, into one node each', () => {
  const rows = new TrafficRows();
  for (let at = 0; at < 200; at++) rows.add(flow({ dst: `10.2.${at % 40}.${at}` }), START);
  rows.add(flow({ dst: '10.2.0.250' }), START);
  const { destinations, lines, others } = mapOf(rows.ordered('count', START), 30);
  expect(destinations).toHaveLength(30);
  expect(destinations[0]?.label).toBe('10.2.0.0/24');
  expect(destinations.at(-1)?.label).toBe('and 11 others');
  expect(others).toBe(11);
  expect(lines.reduce((sum, { count }) => sum + count, 0)).toBe(201);
});

test('a map of many IPv6 destinations draws them together by /64 prefix, and names the groups of IPv6 sources', () => {
  const rows = new TrafficRows();
  for (let at = 1; at <= 40; at++) rows.add(flow({ src: '2001:db8::7', dst: `2001:db8:0:1::${at}` }), START);
  const others = ['2001:db8:0:2:1:2:3:4', '2001:db8::9', 'fd00:0:0:1::1', '::1:2:3:4:5', '2001:db8:5:0:1::', '::1'];
  for (const dst of others) rows.add(flow({ dst, source_group: null, source_groups: ['lan6'], rule: null }), START);
  const { groups, destinations } = mapOf(rows.ordered('count', START), 30);
  expect(groups.map(({ label }) => label)).toEqual(['lan6', 'office']);
  expect(destinations.map(({ filter }) => filter).sort()).toEqual(
    [
      ...['dst:2001:db8:0:1::/64', 'dst:2001:db8:0:2::/64', 'dst:2001:db8::/64', 'dst:fd00:0:0:1::/64'],
      ...['dst:0:0:0:1::/64', 'dst:2001:db8:5::/64', 'dst:::/64'],
    ].sort(),
  );
});

test('the traffic map treats ports of the same service as one class', () => {
  const classOf = (more: Partial<Message>) => portClass({ message: flow(more), subject: 'tcp 9999' });
  expect([classOf({ dst_port: 80 }), classOf({ dst_port: 8443 }), classOf({ type: 'dns' })]).toEqual([
    'web',
    'web',
    'names',
  ]);
  expect(classOf({ dst_port: 9_999 })).toBe('tcp 9999');
});
