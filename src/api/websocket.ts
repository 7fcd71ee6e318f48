import type { IncomingMessage } from 'node:http';
import websocket from '@fastify/websocket';
import type { Api } from './api.js';

/**
 * The WebSocket subprotocol of each stream, by path. A client may offer no subprotocol. If a client offers
 * only other subprotocols, the server accepts the handshake without a subprotocol, and the client must then
 * fail the connection (RFC 6455, 4.1).
 */
const SUBPROTOCOLS: Readonly<Record<string, string>> = {
  '/api/v1/wiretap/stream': 'weir.wiretap.v1',
  '/api/v1/debug/statecharts/stream': 'weir.statecharts.v1',
};

/**
 * The greatest size in bytes of a message from a client. A small limit suffices, because clients send only
 * control frames.
 */
const MESSAGE_BYTES = 1_024;
const GOING_AWAY = 1001;
const GOODBYE_MS = 1_000;

/** Enables WebSockets for all routes with `websocket: true` that are registered after this call. */
export async function registerWebSockets(api: Api): Promise<void> {
  // Close the connection after the server has refused an upgrade request. Node's HTTP timeouts do not apply
  // to this connection, so it would otherwise stay open.
  api.addHook('onResponse', async ({ raw }) => {
    if (upgrades(raw)) raw.socket.destroySoon();
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
        const spoken = SUBPROTOCOLS[(url ?? '').split('?', 1)[0] ?? ''];
        return spoken !== undefined && offered.has(spoken) ? spoken : false;
      },
    },
  });
}

/**
 * Returns whether the client requests an upgrade to a WebSocket. Node sets the property `upgrade`, but Node's
 * type declarations do not contain it.
 */
const upgrades = (request: IncomingMessage): boolean => (request as { readonly upgrade?: boolean }).upgrade === true;
