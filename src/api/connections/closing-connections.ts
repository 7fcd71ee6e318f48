import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Api } from '#api/api.js';
import { UpgradeRequest } from './upgrade-requests.js';

type Answer = ServerResponse<IncomingMessage>;
const last = new WeakSet<Answer>();

/**
 * Closes a connection after the response to its last allowed request. The limit `maxRequestsPerSocket` of
 * Node.js only sends `Connection: close`: it leaves the connection open, and responds to the next request
 * with a 503 without a body. A request with an unwanted `Upgrade` header is also the last one, because the
 * parser of Node.js stops after it.
 */
export function endAfter(server: Server, requestsPerSocket: number): void {
  const counts = new WeakMap<Socket, number>();
  server.prependListener('request', (request, answer) => {
    const { socket } = request;
    const count = (counts.get(socket) ?? 0) + 1;
    counts.set(socket, count);
    const isOffer = request instanceof UpgradeRequest && request.isUnwantedOffer;
    if (count < requestsPerSocket && !isOffer) return;
    last.add(answer);
    answer.setHeader('connection', 'close');
  });
}

/**
 * Returns whether the connection closes after this response. Such a response must keep its `Connection:
 * close` header.
 */
export function isLastAnswer(answer: Answer): boolean {
  return last.has(answer);
}

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
