import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

type Answer = ServerResponse<IncomingMessage>;
const last = new WeakSet<Answer>();

/**
 * Closes a connection after the response to its last allowed request. Node's own count
 * (`maxRequestsPerSocket`) sends `Connection: close`, leaves the connection open, and answers the next
 * request with a bare 503.
 */
export function endAfter(server: Server, requestsPerSocket: number): void {
  const counts = new WeakMap<Socket, number>();
  server.prependListener('request', ({ socket }, answer) => {
    const count = (counts.get(socket) ?? 0) + 1;
    counts.set(socket, count);
    if (count < requestsPerSocket) return;
    last.add(answer);
    answer.setHeader('connection', 'close');
  });
}

/** Whether the connection ends after this response, which must then keep its `Connection` header. */
export function isLastAnswer(answer: Answer): boolean {
  return last.has(answer);
}
