import websocket from '@fastify/websocket';
import type { Api } from '#api/api.js';
import { ApiError, WEBSOCKET_NEEDED } from '#api/errors/errors.js';
import { subprotocolOf, UpgradeRequest } from './upgrade-requests.js';

/** The maximum size in bytes of a message from a client. Clients send only control frames. */
const MESSAGE_BYTES = 1_024;
const GOING_AWAY = 1001;
const GOODBYE_MS = 1_000;

/** Enables WebSockets for all routes with `websocket: true` that are registered after this call. */
export async function registerWebSockets(api: Api): Promise<void> {
  // Close the connection after the server has refused an upgrade request. The HTTP timeouts of Node.js do not
  // apply to this connection, so it would otherwise stay open.
  api.addHook('onResponse', async ({ raw }) => {
    if (raw instanceof UpgradeRequest && raw.upgrade) raw.socket.destroySoon();
  });
  // Use `preHandler`, which runs after the token was checked in `onRequest`.
  api.addHook('preHandler', async ({ raw }) => {
    if (raw instanceof UpgradeRequest && raw.upgrade) checkHandshake(raw);
  });
  await api.register(websocket, {
    preClose(done) {
      for (const client of this.websocketServer.clients) {
        client.close(GOING_AWAY, 'the node is shutting down');
        // Terminate the connection after `GOODBYE_MS`: a client that does not read does not answer the close
        // frame, and would block the shutdown.
        setTimeout(() => client.terminate(), GOODBYE_MS).unref();
      }
      this.websocketServer.close();
      done();
    },
    options: {
      maxPayload: MESSAGE_BYTES,
      perMessageDeflate: false,
      handleProtocols: (offered, { url }) => {
        const spoken = subprotocolOf(url);
        return spoken !== undefined && offered.has(spoken) ? spoken : false;
      },
    },
  });
}

/** Refuses an incomplete handshake (RFC 6455, 4.2.1). `ws` would answer without a problem document. */
function checkHandshake({ headers }: UpgradeRequest): void {
  if (headers['sec-websocket-version'] !== '13')
    throw new ApiError('upgrade_needed', 'Sec-WebSocket-Version must be 13', [], {
      ...WEBSOCKET_NEEDED,
      'sec-websocket-version': '13',
    });
  if (!/^[+/\dA-Za-z]{22}==$/.test(headers['sec-websocket-key'] ?? ''))
    throw new ApiError('malformed_request', 'Sec-WebSocket-Key must be 16 bytes in base64');
}
