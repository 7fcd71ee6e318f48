import { Duplex } from 'node:stream';
import type { TLSSocket } from 'node:tls';
import { expect, test } from 'vitest';
import { Tunnel } from '#service-plane/intercept/http1/tunnel.js';
import type { LinkListener, ServerLink } from '#service-plane/intercept/server-link.js';

const duplex = () =>
  new Duplex({ read: () => {}, write: (_chunk, _encoding, done) => done(), allowHalfOpen: true }) as TLSSocket;

test.each(['client', 'server'] as const)(
  '`Tunnel` closes both connections if no data pass for more than 60 seconds after one side (%s) has ended',
  (side) => {
    const client = duplex();
    const socket = duplex();
    const clock = { tick: 0 };
    let listener: LinkListener | undefined;
    const link = {
      socket,
      listen: (its: LinkListener) => {
        listener = its;
      },
    } as unknown as ServerLink;
    const tunnel = new Tunnel({ client, clientEnd: () => 'closed', link, clock });
    const after = (ticks: number): readonly boolean[] => {
      clock.tick += ticks;
      tunnel.checkTimeouts();
      return [client.destroyed, socket.destroyed];
    };
    expect(after(1_000)).toEqual([false, false]);
    listener?.onData(Buffer.from('x'));
    if (side === 'client') client.emit('end');
    else listener?.gone('closed');
    expect([client, socket].map(({ writableEnded }) => writableEnded)).toEqual([side === 'server', side === 'client']);
    expect(after(12)).toEqual([false, false]);
    if (side === 'client') listener?.onData(Buffer.from('x'));
    else client.emit('data', Buffer.from('x'));
    expect(after(12)).toEqual([false, false]);
    expect(after(1)).toEqual([true, true]);
  },
);
