import { expect, test } from 'vitest';
import { isOwnConnection } from '#api/connections/own-connection.js';

test.each([
  ['10.0.0.1', '10.0.0.1', true],
  ['::ffff:10.0.0.1', '::ffff:10.0.0.1', true],
  ['2001:db8::1', '2001:db8::1', true],
  ['127.0.0.5', '127.0.0.1', true],
  ['::ffff:127.0.0.5', '::ffff:127.0.0.1', true],
  ['::1', '::1', true],
  ['10.0.0.2', '10.0.0.1', false],
  ['10.127.0.1', '10.0.0.1', false],
  ['::ffff:10.0.0.2', '::ffff:10.0.0.1', false],
  [undefined, undefined, false],
])(
  '`isOwnConnection` tells for a connection from the address %s to the address %s whether it comes from the node itself: %s',
  (remoteAddress, localAddress, isOwn) => {
    expect(isOwnConnection({ remoteAddress, localAddress })).toBe(isOwn);
  },
);
