import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import { weir } from '#cli/weir.js';

export type Answer = { readonly status: number; readonly body: unknown };
type Asked = { readonly method: string; readonly path: string; readonly authorization: string; readonly body: string };

/** A server that gives one answer after the other, and the last from then on, and keeps what it was asked. */
export async function serverThatAnswers(...answers: readonly [Answer, ...Answer[]]) {
  const asked: Asked[] = [];
  const server = createServer(async (request: IncomingMessage, response) => {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const { method = '', url: path = '', headers } = request;
    const { status, body } = answers[Math.min(asked.length, answers.length - 1)] as Answer;
    asked.push({ method, path, authorization: headers.authorization ?? '', body: text });
    if (status === 302) response.setHeader('location', '/elsewhere');
    response.statusCode = status;
    response.end(body === undefined ? '' : typeof body === 'string' ? body : JSON.stringify(body));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

export async function run(words: readonly string[], environment: Record<string, string> = {}) {
  let out = '';
  let err = '';
  const code = await weir(words, {
    environment,
    out: (text) => {
      out += text;
    },
    err: (text) => {
      err += text;
    },
  });
  return { code, out, err };
}
