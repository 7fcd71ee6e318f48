import { once } from 'node:events';
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads';
import { expect, test } from 'vitest';
import type { HitsMessage } from '#contracts/datapath/grant-messages.js';
import type { Decider } from '#contracts/policy/rule-names.js';
import { deciderKey } from '#policy/model/rules/rule-names.js';
import { DecidedHits } from '#threads/decided-hits.js';

const rule = (group: string, id: string): Decider => ({ kind: 'rule', group, rule: id });

function received(port: Parameters<typeof receiveMessageOnPort>[0]) {
  const hits: (readonly [unknown, unknown, number])[] = [];
  for (let next = receiveMessageOnPort(port); next !== undefined; next = receiveMessageOnPort(port))
    for (const { generation, by, count } of (next.message as HitsMessage).hits) hits.push([generation, by, count]);
  return hits;
}

test('`DecidedHits` (hits of DNS and HTTP rules) sends equal decisions once, as one hit count with the time of the last decision', () => {
  const { port1, port2 } = new MessageChannel();
  const hits = new DecidedHits((by: number | Decider) => (typeof by === 'number' ? by : deciderKey(by)));
  hits.sendBy(port1);
  const ruleNameResolver: Decider[] = [
    rule('a', 'b'),
    rule('b', 'a'),
    { kind: 'group_default', group: 'a' },
    { kind: 'policy_default' },
  ];
  const before = process.hrtime.bigint();
  for (const count of [1, 2, 3])
    for (const [index, by] of [...ruleNameResolver, 7].entries()) for (let n = index; n < 5; n++) hits.add(count, by);
  hits.send();
  hits.send();
  const sent = receiveMessageOnPort(port2)?.message as HitsMessage;
  expect(sent.hits.map(({ generation, by, count }) => [generation, by, count])).toEqual(
    [1, 2, 3].flatMap((generation) => [...ruleNameResolver, 7].map((by, index) => [generation, by, 5 - index])),
  );
  for (const { lastNs } of sent.hits) {
    // The test allows an error of 1 ms: `DecidedHits` computes `lastNs` from two clocks, which it cannot read
    // at one instant.
    expect(lastNs).toBeGreaterThan(before - 1_000_000n);
    expect(lastNs).toBeLessThanOrEqual(process.hrtime.bigint());
  }
  expect(received(port2)).toEqual([]);
  port1.close();
});

test('`DecidedHits` without a MessagePort keeps the hit counts of the newest policy generation, and sends them through the next port', async () => {
  const { port1, port2 } = new MessageChannel();
  const hits = new DecidedHits((by: number | Decider) => (typeof by === 'number' ? by : deciderKey(by)));
  hits.sendBy(port1);
  port2.close();
  await once(port1, 'close');
  for (const generation of [1, 2]) for (let count = 0; count < 3; count++) hits.add(generation, rule('a', 'b'));
  hits.send();
  const next = new MessageChannel();
  hits.sendBy(next.port1);
  hits.send();
  expect(received(next.port2)).toEqual([[2, rule('a', 'b'), 3]]);
  next.port1.close();
});
