import { connect } from 'node:net';
import type { LightMyRequestResponse } from 'fastify';
import { afterEach } from 'vitest';
import type { Api } from '#api/api.js';
import type { ApiOptions } from '#api/api-options.js';
import { createApi } from '#api/server.js';
import { type FakeManagement, fakeManagement, TOKENS } from './fake-management.js';

const open: Api[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((api) => api.close()));
});

export type ApiRig = {
  readonly api: Api;
  readonly node: FakeManagement;
  /** Sends a request with the admin token. `request.token` replaces this token; null sends no token. */
  readonly ask: (method: string, url: string, request?: Asked) => Promise<LightMyRequestResponse>;
};
export type Asked = {
  readonly body?: string | Buffer | object;
  readonly headers?: Readonly<Record<string, string>>;
  readonly token?: string | null;
};

export async function rig(options: Partial<ApiOptions> = {}, node = fakeManagement()): Promise<ApiRig> {
  const api = await createApi(node, { version: '0.1.0', ...options });
  open.push(api);
  return {
    api,
    node,
    ask: (method, url, { body, headers, token = TOKENS.admin } = {}) =>
      api.inject({
        method: method,
        url,
        headers: {
          host: 'localhost:8080',
          ...(token === null ? {} : { authorization: `Bearer ${token}` }),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body === undefined ? {} : { payload: body }),
      }),
  };
}

/** Lets the API listen on a free port of 127.0.0.1, and returns that port. */
export async function listening(api: Api): Promise<number> {
  await api.listen({ host: '127.0.0.1', port: 0 });
  const address = api.server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}

/** Replaces each parameter in the path of a route, such as `{id}`, by an example value. */
export const concrete = (path: string): string =>
  path.replace(/[:{](id|name|group_id)\}?/g, 'x1').replace(/[:{]revision\}?/g, '1');

/** Sends bytes, and returns the response when the server has closed the connection. */
export function answerTo(port: number, bytes: string): Promise<string> {
  return new Promise((resolve, reject) => {
    let received = '';
    const socket = connect(port, '127.0.0.1', () => socket.write(bytes));
    socket.setEncoding('utf8').on('error', reject);
    socket.on('data', (part: string) => {
      received += part;
    });
    socket.on('close', () => resolve(received));
  });
}
