import { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { expect, test } from 'vitest';
import type { LinkListener, ServerLink } from '#service-plane/intercept/server-link.js';
import { Tunnel } from '#service-plane/intercept/tunnel.js';

/** A socket whose idle timeout the test triggers. */
class FakeSocket extends Duplex {
  timeoutMs = 0;
  constructor() {
    super({ read: () => {}, write: (_chunk, _encoding, done) => done(), allowHalfOpen: true });
  }
  setKeepAlive(): void {}
  setTimeout(ms: number, over?: () => void): void {
    this.timeoutMs = ms;
    if (over !== undefined) this.once('timeout', over);
  }
}

test('Tunnel closes the connection of a client that is idle for 60 seconds after the server is gone', () => {
  const client = new FakeSocket();
  let listener: LinkListener | undefined;
  const link = {
    socket: new FakeSocket(),
    listen: (its: LinkListener) => {
      listener = its;
    },
  };
  new Tunnel(client as unknown as TLSSocket, link as unknown as ServerLink);
  listener?.gone();
  expect([client.writableEnded, client.destroyed, client.timeoutMs]).toEqual([true, false, 60_000]);
  client.emit('timeout');
  expect(client.destroyed).toBe(true);
});
