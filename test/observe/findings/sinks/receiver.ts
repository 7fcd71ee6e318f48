import { createHmac } from 'node:crypto';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

export type Received = { readonly path: string; readonly headers: IncomingHttpHeaders; readonly body: string };

/**
 * Starts an HTTP server on 127.0.0.1 that keeps each request, and responds as the test sets in `told.answer`.
 */
export async function receiver(port = 0) {
  const received: Received[] = [];
  const told = { answer: (answer: ServerResponse): void => void answer.writeHead(204).end() };
  const server = createServer((request, answer) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const { url: path = '', headers } = request;
      received.push({ path, headers, body: Buffer.concat(chunks).toString() });
      told.answer(answer);
    });
  });
  const close = () =>
    new Promise<void>((resolve) => {
      server.closeAllConnections();
      server.close(() => resolve());
    });
  onTestFinished(close);
  await new Promise<void>((resolve) => {
    server.listen(port, '127.0.0.1', resolve);
  });
  const { port: own } = server.address() as AddressInfo;
  return { received, told, port: own, url: `http://127.0.0.1:${own}/in?key=planted-path`, close };
}

/** Returns whether the HMAC in the `weir-signature` header is valid for the body and `secret`. */
export function isSigned({ headers, body }: Received, secret: string): boolean {
  const [, seconds, hex] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(headers['weir-signature'])) ?? [];
  return createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex') === hex;
}
