import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Api } from '#api/api.js';

/**
 * When the API closes, closes the connections that have sent no request yet, such as the spare connections of
 * browsers and of health checks. Node.js would wait for their first request until a timeout.
 */
export function closeSilentConnections(api: Api, isTls: boolean): void {
  const silent = new Set<Socket>();
  let isClosing = false;
  api.server.on(isTls ? 'secureConnection' : 'connection', (socket: Socket) => {
    if (isClosing) socket.destroy();
    silent.add(socket);
    socket.once('close', () => silent.delete(socket));
  });
  for (const event of ['request', 'upgrade'])
    api.server.on(event, ({ socket }: IncomingMessage) => silent.delete(socket));
  api.addHook('preClose', async () => {
    isClosing = true;
    for (const socket of silent) socket.destroy();
  });
}
