import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { connectionLimit } from '#sockets/listening/connection-limit.js';

/** A connection with this remote address and without a descriptor. */
const from = (remoteAddress: string): Socket =>
  Object.assign(new EventEmitter(), { remoteAddress }) as unknown as Socket;

test.each([
  ['an IPv4 address', ['192.0.2.1', '192.0.2.1', '192.0.2.1'], '192.0.2.2'],
  ['an IPv6 /64 prefix', ['2001:db8::1', '2001:db8::2', '2001:db8:0:0:ffff::1'], '2001:db8:0:1::1'],
  [
    'an IPv4 address at a listener of both families',
    ['::ffff:192.0.2.1', '192.0.2.1', '::ffff:192.0.2.1'],
    '::ffff:192.0.2.2',
  ],
  ['a link-local address with a zone', ['fe80::1%eth0', 'fe80::1%eth0', 'fe80::1%eth0'], 'fe80::1%eth1'],
])('`connectionLimit` counts the open connections of %s together', (_, sources, other) => {
  const refuses = connectionLimit(() => 2, 'api');
  const [first, ...others] = sources.map(from);
  expect([first, ...others].map((connection) => connection !== undefined && refuses(connection))).toEqual([
    false,
    false,
    true,
  ]);
  expect(refuses(from(other))).toBe(false);
  first?.emit('close');
  expect(refuses(from(sources[0] ?? ''))).toBe(false);
});
