import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

/**
 * The response to one request: an error, or a stream of `frames`. `after` is the action after the last frame:
 * end the stream, cut the connection, or keep the stream open.
 */
export type Turn =
  | { readonly status: number; readonly body: unknown }
  | { readonly frames: readonly unknown[]; readonly after: 'end' | 'cut' | 'stay' };

/**
 * Starts a fake node whose wiretap route responds to each request with the next of `turns`; the last turn is
 * repeated.
 */
export async function wiretapThatSends(...turns: readonly [Turn, ...Turn[]]) {
  const asked: string[] = [];
  const open = new Set<ServerResponse>();
  const server = createServer((request, response) => {
    const turn = turns[Math.min(asked.length, turns.length - 1)] as Turn;
    asked.push(`${request.headers.accept ?? ''} ${request.url ?? ''}`);
    if ('status' in turn) {
      response.writeHead(turn.status, { 'content-type': 'application/problem+json' });
      response.end(JSON.stringify(turn.body));
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(': here it begins\n\n');
    for (const frame of turn.frames) response.write(`data: ${JSON.stringify(frame)}\n\n`);
    open.add(response);
    if (turn.after === 'end') response.end();
    // Cuts the connection only after the frames were sent, because an earlier cut would discard the frames.
    if (turn.after === 'cut') response.write(': cut\n\n', () => setImmediate(() => response.destroy()));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    /** Sends one more frame to every open stream. */
    send: (frame: unknown) => {
      for (const response of open) response.write(`data: ${JSON.stringify(frame)}\n\n`);
    },
    /** The number of streams that the client has not closed. */
    reading: () => [...open].filter(({ destroyed, writableEnded }) => !destroyed && !writableEnded).length,
  };
}
