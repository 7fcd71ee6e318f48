import { MessageChannel, type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import { expect, onTestFinished, test } from 'vitest';
import type { GrantRequest } from '#contracts/datapath/grant-messages.js';
import { Granter } from '#dns/grants/granter.js';
import { settled } from './settled.js';

/**
 * Creates a `Granter` with one end of a MessageChannel. Through the other end, `own`, the test replies like
 * the datapath.
 */
function rig(timeoutMs = 10_000) {
  const refused: number[] = [];
  const granter = new Granter({ hasToSend: () => {} }, (count) => refused.push(count), timeoutMs);
  const { port1, port2 } = new MessageChannel();
  granter.use(port1);
  onTestFinished(() => port2.close());
  const granted: string[] = [];
  const grant = (address: number): void =>
    granter.grant(['a', 'b'], [address], { expiryNs: 9, isAwaited: true, done: (how) => granted.push(how) });
  const asked = (port: MessagePort = port2): GrantRequest | undefined =>
    (receiveMessageOnPort(port) as { message: GrantRequest } | undefined)?.message;
  return { granter, refused, granted, grant, asked, own: port2 };
}

test('the DNS granter (asks the datapath to permit answered addresses) sends all waiting grants in one message, and calls `done` of each grant after the reply of the datapath', async () => {
  const { granter, granted, grant, asked, own } = rig();
  grant(1);
  grant(2);
  granter.flush();
  const { id, ...rows } = asked() ?? {};
  expect(rows).toEqual({
    patterns: ['a', 'b', 'a', 'b'],
    addresses: [1, 1, 2, 2],
    expiriesNs: Float64Array.of(9, 9, 9, 9),
  });
  expect([granted, asked()]).toEqual([[], undefined]);
  own.postMessage({ id, refused: 0 });
  await settled(() => granted, ['all', 'all']);
});

test('the DNS granter (asks the datapath to permit answered addresses) reports the number of addresses that the datapath refused', async () => {
  const { granter, refused, granted, grant, asked, own } = rig();
  grant(1);
  granter.flush();
  own.postMessage({ id: asked()?.id, refused: 1 });
  await settled(() => granted, ['some']);
  expect(refused).toEqual([1]);
});

test('the DNS granter (asks the datapath to permit answered addresses) calls the `done` function of a grant with "none" if the datapath does not reply in time', () => {
  const { granter, granted, grant } = rig(0);
  grant(1);
  granter.flush();
  expect(granted).toEqual([]);
  granter.tick();
  expect(granted).toEqual(['none']);
});

test('the DNS granter (asks the datapath to permit answered addresses) reads a reply that has already arrived at the port before it lets the grant time out', () => {
  const { granter, granted, grant, asked, own } = rig(0);
  grant(1);
  granter.flush();
  own.postMessage({ id: asked()?.id, refused: 0 });
  granter.tick();
  expect(granted).toEqual(['all']);
});

test('the DNS granter (asks the datapath to permit answered addresses) calls `done` with "none" for grants that are pending when its MessagePort is removed, and for grants while it has none', () => {
  const { granter, granted, grant } = rig();
  grant(1);
  granter.flush();
  granter.use(null);
  grant(2);
  expect(granted).toEqual(['none', 'none']);
});

test('the DNS granter (asks the datapath to permit answered addresses) ignores a reply that arrives through a port that is no longer in use', async () => {
  const { granter, refused, own } = rig();
  const { port1, port2 } = new MessageChannel();
  onTestFinished(() => port2.close());
  own.postMessage({ id: 0, refused: 4 });
  granter.use(port1);
  port2.postMessage({ id: 0, refused: 5 });
  await settled(() => refused, [5]);
});
